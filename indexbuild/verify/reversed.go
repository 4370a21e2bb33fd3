package verify

import (
	"context"
	"fmt"
	"slices"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/lake/codec"
)

// reversedRange is what a job has found in a range of lines of domains.reversed.
type reversedRange struct {
	first, last string
	names       uint64 // sum of mixSet without datasets
	partial     bool   // not read to its end
	found       findings
}

// reversed checks domains.reversed: its lines ascend, they are the domains with their bytes
// reversed, and domains.reversed.starts has the beginnings of frames.
func (v *verifier) reversed() error {
	names := v.seg.Reversed()
	key := v.key(segment.ReversedName)
	last, sum, partial := "", uint64(0), false
	jobs := int((v.info.Domains + domainsPerJob - 1) / domainsPerJob)
	err := inOrder(v.ctx, jobs, func(ctx context.Context, _, i int) (r reversedRange, err error) {
		return r, v.reversedRange(ctx, names, int64(i)*domainsPerJob, &r)
	}, func(i int, r reversedRange) error {
		v.found.addAll(&r.found)
		if partial = partial || r.partial; partial {
			return nil
		}
		if line := int64(i) * domainsPerJob; i > 0 && r.first <= last {
			v.wrong(key, fmt.Sprintf("line %d", line), fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", r.first))
		} else {
			v.checkStart(&v.found, names, segment.ReversedStartsName, line, last, r.first)
		}
		last, sum = r.last, sum+r.names
		return nil
	})
	if err == nil && !partial && !v.partial.domains && sum != v.names {
		v.found.add(codec.Corrupt(key, "lines", -1, "the domains with their bytes reversed", "others"))
	}
	return err
}

// reversedRange reads the lines of a job, from a line on.
func (v *verifier) reversedRange(ctx context.Context, names *segment.Names, from int64, r *reversedRange) error {
	var domain []byte
	for f, err := range names.Frames(ctx, uint32(from), from+domainsPerJob) {
		if err != nil {
			r.partial = true
			return r.found.problem(ctx, v.key(segment.ReversedName), err)
		}
		if f.First == from {
			r.first = string(f.Domain(0))
		} else {
			v.checkStart(&r.found, names, segment.ReversedStartsName, f.First, r.last, string(f.Domain(0)))
		}
		r.last = string(f.Domain(len(f.Ends) - 1))
		for i := range f.Ends {
			domain = append(domain[:0], f.Domain(i)...)
			slices.Reverse(domain)
			r.names += mixSet(postings.DomainKey(domain), 0)
		}
	}
	return nil
}
