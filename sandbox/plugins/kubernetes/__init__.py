"""A stand-in for pulumi-resource-kubernetes 4.34, against real API servers of the sandbox.

Rules and error texts follow upstream's provider (`provider/pkg/provider/provider.go`, `helm_release.go`,
`provider/pkg/await`). It differs from it in this: it talks to API servers on this machine only; all writes validate
strictly, where upstream warns of unknown fields; `*Patch` resources, functions and components are refused; Services,
Ingresses, volumes and quotas are not waited for; a refresh reports what is there, without judging its readiness.
"""
