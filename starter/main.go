// Starter is urlake's command line. It starts and watches the workflows that ingest and publish,
// inspects and verifies lakes, and runs the demo. Only workers write to a lake, with one exception:
// "rules update" writes which public suffix list the lake follows, and the list.
//
// Results go to standard output, progress and errors to standard error, and the exit code tells
// success, failure and wrong usage apart. Texts for people go through cli.Fprintf, which escapes
// names and texts from outside; with --json every verb but demo prints JSON instead.
package main

import (
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/starter/command"
)

func main() { cli.Main(command.New()) }
