// Frontierd decides what a crawler fetches next: see package frontier.
package main

import (
	"github.com/urlake/urlake/frontier/command"
	"github.com/urlake/urlake/internal/cli"
)

func main() { cli.Main(command.New()) }
