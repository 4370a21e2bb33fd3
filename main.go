// Urlake is all of urlake in one program: up runs a lake on this machine, add ingests into it, find
// answers which datasets hold a domain, and the verbs of starter, worker and serve are the same as
// those programs. Called by the name starter or worker, it is that program.
package main

import (
	"os"

	"github.com/urlake/urlake/command"
	"github.com/urlake/urlake/internal/cli"
)

func main() { cli.Main(command.Called(os.Args[0])) }
