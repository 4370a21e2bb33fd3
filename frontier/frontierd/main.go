// Frontierd decides what a crawler fetches next: see package frontier.
package main

import (
	"github.com/redis/go-redis/v9/logging"

	"github.com/urlake/urlake/frontier/command"
	"github.com/urlake/urlake/internal/cli"
)

func main() {
	logging.Disable() // its errors are returned, too
	cli.Main(command.New())
}
