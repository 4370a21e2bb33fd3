// Gen writes generated lists of URLs, ds1.txt and so on, or describes a list by the figures they are fitted to.
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
	flag.Uint64Var(&opt.Seed, "seed", 1, "another seed is another world")
	dir := flag.String("dir", "", "folder to write the lists to")
	measure := flag.Bool("measure", false, "describe the URLs on standard input instead")
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
		return fmt.Errorf("-dir says where to write the lists")
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
