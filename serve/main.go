// Serve answers a lake's two queries over HTTP: which datasets contain a domain, and which URLs of
// the domain a dataset contains. It needs only a lake URL and a cache folder. It serves each newly
// published version without a restart, and it never writes to the lake.
package main

import (
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/serve/command"
)

func main() { cli.Main(command.New()) }
