// Crawler is a small polite crawler that fetches what a frontierd hands out.
package main

import (
	"github.com/urlake/urlake/frontier/example"
	"github.com/urlake/urlake/internal/cli"
)

func main() { cli.Main(example.NewCommand()) }
