package part

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/row"
)

// Runs of domains and their measures agree with the columns, however many pages are read at once.
func TestDomainRunsAreThoseOfTheColumns(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 77))
		var rows []row.Row
		for range 400 {
			domain := fmt.Sprintf("d%d.example", int(30*rng.Float64()*rng.Float64()))
			path := fmt.Sprintf("/%x", rng.Uint64())
			r := row.Row{Domain: domain, Host: domain, PathQuery: path, Scheme: "https", Port: -1}
			if seed%3 > 0 && rng.IntN(50) < 1 {
				r.HasTS, r.TS = true, rng.Int64N(1e12)
			}
			if seed%3 > 1 && rng.IntN(3) < 1 {
				r.HasSize, r.Size = true, rng.Int64N(1e6)
			}
			rows = append(rows, r)
		}
		store, parts := writeParts(t, sortedRows(rows), Limits{PageRows: 1 + rng.IntN(9), RowGroupBytes: 2000})
		var d DomainRuns
		for _, p := range parts {
			for i := range p.Blocks {
				b := &p.Blocks[i]
				for from := 0; from < b.Pages(); {
					to := min(from+1+rng.IntN(5), b.Pages())
					plan, err := NewDomainPlan(b, from, to)
					if err != nil {
						t.Fatal(err)
					}
					data, err := plan.Read(t.Context(), store, p.Part.Key)
					if err != nil {
						t.Fatal(err)
					}
					if err := plan.DomainRuns(&d, p.Part.Key, data); err != nil {
						t.Fatal(err)
					}
					want, err := plan.Decode(p.Part.Key, data)
					if err != nil {
						t.Fatal(err)
					}
					var domains []string
					for n := range d.Len() {
						domain, rows := d.Run(n)
						if n > 0 && domains[len(domains)-1] == string(domain) {
							t.Errorf("%s in two runs", domain)
						}
						for range rows {
							domains = append(domains, string(domain))
						}
					}
					if !slices.Equal(domains, want.Domain) {
						t.Fatalf("rows %d of %d: domains differ", plan.FirstRow(), b.RowGroup)
					}
					some := slices.Contains(want.HasTS, true) || slices.Contains(want.HasSize, true)
					m := &d.Measures
					same := slices.Equal(m.TS, want.TS) && slices.Equal(m.HasTS, want.HasTS) &&
						slices.Equal(m.Size, want.Size) && slices.Equal(m.HasSize, want.HasSize)
					if some != (m.Rows > 0) || some && !same {
						t.Fatalf("rows %d of %d: measures differ", plan.FirstRow(), b.RowGroup)
					}
					// A changed byte of any page is noticed.
					data[rng.IntN(3)][0] ^= 1
					if err := plan.DomainRuns(&d, p.Part.Key, data); !errors.Is(err, codec.ErrCorrupt) {
						t.Errorf("a page with another byte: %v", err)
					}
					from = to
				}
			}
		}
	}
	if _, err := NewDomainPlan(new(PageIndexBlock), 0, 0); err == nil {
		t.Error("no pages: no error")
	}
}

// FuzzDomainRuns decodes arbitrary bytes as runs and as strings. Both agree, or both are rejected.
func FuzzDomainRuns(f *testing.F) {
	// Lengths 0, 3, 3, 2, 0 of prefixes and 3, 0, 0, 2, 1 of suffixes.
	f.Add([]byte("\x80\x01\x04\x05\x00\x03\x03\x00\x00\x00U\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"+
		"\x80\x01\x04\x05\x06\x05\x03\x00\x00\x00X\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00a.bcdx"), 5)
	f.Add([]byte("\x80\x01\x04\x00\x00\x80\x01\x04\x00\x00"), 0)
	f.Fuzz(func(t *testing.T, values []byte, n int) {
		if n < 0 || n > 1<<16 {
			return
		}
		dec := pageDecoders.Get().(*pageDecoder)
		defer pageDecoders.Put(dec)
		var want []string
		var got DomainRuns
		okStrings := dec.appendStrings(&want, values, nil, n, 0, n)
		if ok := dec.appendRuns(&got, values, n); ok != okStrings {
			t.Fatalf("strings %v, runs %v", okStrings, ok)
		} else if !ok {
			return
		}
		at := 0
		for i := range got.Len() {
			domain, rows := got.Run(i)
			for ; rows > 0; rows-- {
				if want[at] != string(domain) {
					t.Fatalf("value %d: %q, want %q", at, domain, want[at])
				}
				at++
			}
		}
		if at != n {
			t.Fatalf("%d values, want %d", at, n)
		}
	})
}

// BenchmarkDomainRuns decodes the domains of a part.
func BenchmarkDomainRuns(b *testing.B) {
	var rows []row.Row
	rng := rand.New(rand.NewPCG(5, 5))
	for domain := range 20_000 {
		name := fmt.Sprintf("domain-%05d.example", domain)
		for path := range 1 + int(4*rng.ExpFloat64()) {
			rows = append(rows, row.Row{Domain: name, Host: name, PathQuery: fmt.Sprintf("/%05d", path), Scheme: "https", Port: -1})
		}
	}
	store, parts := writeParts(b, rows, Limits{})
	block := &parts[0].Blocks[0]
	plan, err := NewDomainPlan(block, 0, block.Pages())
	if err != nil {
		b.Fatal(err)
	}
	data, err := plan.Read(b.Context(), store, parts[0].Part.Key)
	if err != nil {
		b.Fatal(err)
	}
	var d DomainRuns
	for b.Loop() {
		if err := plan.DomainRuns(&d, parts[0].Part.Key, data); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(block.Rows()), "ns/row")
}
