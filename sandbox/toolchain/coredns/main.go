// CoreDNS with the plugins that the sandbox's Corefile names. The released program has those of several clouds, too,
// whose libraries take longer to build than all the rest.
package main

import (
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"

	"github.com/coredns/coredns/coremain"
)

func main() {
	coremain.Run()
}
