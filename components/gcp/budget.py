"""The platform's budget of Cloud Billing."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from catalogue.labels import PLATFORM_LABEL
from components.gcp.pod_identities import project_number
from plan.platform import Platform
from platform_config.monitoring import Budget as Written


class Budget(pulumi.ComponentResource):
    """A budget of a calendar month. Credits, such as discounts, are taken off before it compares.

    - `addresses`: full names of the notification channels to tell; a budget takes e-mail alone
    - `enabled`: the project's APIs
    """

    TYPE = "tpu:gcp:Budget"

    def __init__(
        self,
        name: str,
        *,
        platform: Platform,
        addresses: Sequence[pulumi.Input[str]],
        enabled: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.TYPE, name, None, opts)
        written = platform.monitoring.budget
        assert written is not None
        budget = gcp.billing.Budget(
            f"{name}-month",
            billing_account=written.billing_account,
            display_name=f"TPU platform {platform.name}",
            amount=gcp.billing.BudgetAmountArgs(
                specified_amount=gcp.billing.BudgetAmountSpecifiedAmountArgs(
                    currency_code=written.currency, units=str(written.amount)
                )
            ),
            budget_filter=_filter(platform, written, enabled),
            threshold_rules=_thresholds(written),
            all_updates_rule=_told(addresses) if addresses else None,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(enabled)),
        )
        self.register_outputs({"name": budget.name})


def _filter(
    platform: Platform, written: Written, enabled: Sequence[pulumi.Resource]
) -> gcp.billing.BudgetBudgetFilterArgs:
    """What counts. The API returns a project by its number: by its id it would be a change in every preview
    (GoogleCloudPlatform/cloud-foundation-fabric #2365)."""
    return gcp.billing.BudgetBudgetFilterArgs(
        calendar_period="MONTH",
        projects=[pulumi.Output.concat("projects/", project_number(platform, enabled))],
        labels={PLATFORM_LABEL: platform.name} if written.of == "platform" else None,
    )


def _thresholds(written: Written) -> list[gcp.billing.BudgetThresholdRuleArgs]:
    shares = {"CURRENT_SPEND": written.spent, "FORECASTED_SPEND": written.forecast}
    return [
        gcp.billing.BudgetThresholdRuleArgs(threshold_percent=share, spend_basis=basis)
        for basis in shares
        for share in shares[basis]
    ]


def _told(addresses: Sequence[pulumi.Input[str]]) -> gcp.billing.BudgetAllUpdatesRuleArgs:
    return gcp.billing.BudgetAllUpdatesRuleArgs(monitoring_notification_channels=list(addresses))
