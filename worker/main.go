// Worker runs worker pools of one lake: any subset of them in one process. It takes steps from
// Temporal until it is stopped. All state is in the lake's store and in Temporal, so a worker may
// be started or stopped at any time.
package main

import (
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/worker/command"
)

func main() { cli.Main(command.New()) }
