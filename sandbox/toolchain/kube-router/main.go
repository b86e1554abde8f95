// The network policy controller of kube-router, as its own command starts it with --run-router=false and
// --run-service-proxy=false; k3s has it in its agent in the same way. The released program has a BGP router and a
// service proxy, too, whose libraries take longer to build than all the rest.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	config := options.NewKubeRouterConfig()
	config.AddFlags(pflag.CommandLine)
	pflag.Parse()
	if err := run(config); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run returns only where the controller cannot be started.
func run(config *options.KubeRouterConfig) error {
	access, err := clientcmd.BuildConfigFromFlags(config.Master, config.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	never := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(never)
	factory.WaitForCacheSync(never)

	rules, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	if err = waitForAddress(client, config.HostnameOverride); err != nil {
		return err
	}
	controller, err := netpol.NewNetworkPolicyController(
		client, config, pods, policies, namespaces, &sync.Mutex{}, nil, rules, sets)
	if err != nil {
		return err
	}
	if _, err = pods.AddEventHandler(controller.PodEventHandler); err != nil {
		return err
	}
	if _, err = namespaces.AddEventHandler(controller.NamespaceEventHandler); err != nil {
		return err
	}
	if _, err = policies.AddEventHandler(controller.NetworkPolicyEventHandler); err != nil {
		return err
	}
	var group sync.WaitGroup
	group.Add(1)
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go controller.Run(beats, never, &group)
	for range beats { // Nobody asks for its health, but it waits until somebody has taken a beat.
	}
	return nil
}

// waitForAddress returns when the Node's kubelet has written an address, without which the controller does not start.
func waitForAddress(client kubernetes.Interface, name string) error {
	written := func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && len(node.Status.Addresses) > 0, nil
	}
	return wait.PollUntilContextTimeout(context.Background(), time.Second/2, time.Minute, true, written)
}
