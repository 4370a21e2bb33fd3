// Gen writes generated lists of URLs, ds1.txt and so on. With -measure it describes a list by the
// figures that generated lists are fitted to.
//
//	go run ./gen -rows 20000000 -datasets 32 -dir /tmp/lists
//	go run ./gen -measure < urls.txt
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/urlake/urlake/bench/corpus"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run() error {
	var opt corpus.Options
	flag.Int64Var(&opt.Rows, "rows", 1_000_000, "lines of all lists together")
	flag.IntVar(&opt.Datasets, "datasets", 32, "number of lists")
	flag.Uint64Var(&opt.Seed, "seed", 1, "seed of the generator; another seed gives other lists")
	dir := flag.String("dir", "", "folder for the lists")
	measure := flag.Bool("measure", false, "describe the URLs on standard input and write no lists")
	flag.Parse()
	if *measure {
		shape, err := corpus.Measure(os.Stdin)
		if err != nil {
			return err
		}
		fmt.Print(shape)
		return nil
	}
	if *dir == "" {
		return fmt.Errorf("-dir is missing; give the folder for the lists")
	}
	c, err := corpus.New(opt)
	if err != nil {
		return err
	}
	n, err := c.WriteDir(*dir, runtime.GOMAXPROCS(0))
	if err != nil {
		return err
	}
	fmt.Printf("%d lines, %d bytes in %d lists\n", opt.Rows, n, opt.Datasets)
	return nil
}
