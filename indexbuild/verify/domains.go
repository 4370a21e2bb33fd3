package verify

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/membership"
)

// domainsPerJob is how many domains are looked up in one job.
const domainsPerJob = 64 * segment.DomainsPerFrame

// domainRange is what a job has found in a range of ordinals.
type domainRange struct {
	first, last string
	n           int64
	sets        uint64 // sum of mixSet
	names       uint64 // sum of mixSet without datasets
	setsUnknown bool
	partial     bool // not read to its end
	found       findings
}

// domains checks domains.txt: domains ascend, the perfect hash maps each to its line, and
// domains.starts has the beginnings of frames. It adds up the domains with their sets of datasets.
func (v *verifier) domains() error {
	jobs := int((v.info.Domains + domainsPerJob - 1) / domainsPerJob)
	last := ""
	sets := v.seg.NewSetSums(func(dataset uint32) uint64 { return mix(int64(dataset)) })
	v.setsKnown = true
	return inOrder(v.ctx, jobs, func(ctx context.Context, _, i int) (r domainRange, err error) {
		return r, v.domainRange(ctx, int64(i)*domainsPerJob, sets, &r)
	}, func(i int, r domainRange) error {
		v.found.addAll(&r.found)
		v.report.Domains += r.n
		v.partial.domains = v.partial.domains || r.partial
		v.sets += r.sets
		v.names += r.names
		v.setsKnown = v.setsKnown && !r.setsUnknown && !r.partial
		if r.n > 0 {
			if i > 0 && r.first <= last && !v.partial.domains {
				v.wrong(v.key(segment.DomainsName), fmt.Sprintf("line %d", i*domainsPerJob),
					fmt.Sprintf("a domain after %q", last), fmt.Sprintf("%q", r.first))
			}
			if !v.partial.domains {
				v.checkStart(&v.found, v.seg.Names(), segment.DomainStartsName, int64(i)*domainsPerJob, last, r.first)
			}
			last = r.last
		}
		return nil
	})
}

// domainRange checks the domains of a job, whose first has ordinal from.
func (v *verifier) domainRange(ctx context.Context, from int64, sets *membership.Sums, r *domainRange) error {
	var keys [segment.DomainsPerFrame]segment.Key
	var ordinals [segment.DomainsPerFrame]uint32
	var sums [segment.DomainsPerFrame]uint64
	for f, err := range v.seg.Names().Frames(ctx, uint32(from), from+domainsPerJob) {
		if err != nil {
			r.partial = true
			return r.found.problem(ctx, v.key(segment.DomainsName), err)
		}
		n := len(f.Ends)
		for i := range n {
			keys[i] = postings.DomainKey(f.Domain(i))
		}
		if r.n == 0 {
			r.first = string(f.Domain(0))
		} else {
			v.checkStart(&r.found, v.seg.Names(), segment.DomainStartsName, f.First, r.last, string(f.Domain(0)))
		}
		r.last = string(f.Domain(n - 1))
		if err := v.seg.Ordinals(keys[:n], ordinals[:n]); err != nil {
			r.partial = true
			return r.found.problem(ctx, v.key(segment.MPHFName), err)
		}
		for i, got := range ordinals[:n] {
			if want := uint32(f.First) + uint32(i); got != want {
				r.found.wrong(v.key(segment.MPHFName), "ordinal of "+string(f.Domain(i)), want, describeOrdinal(got))
			}
		}
		if err := sets.Range(uint32(f.First), sums[:n]); err != nil {
			r.setsUnknown = true // then postings looks up each domain and reports why
		}
		for i, k := range keys[:n] {
			r.sets += mixSet(k, sums[i])
			r.names += mixSet(k, 0)
		}
		r.n += int64(n)
	}
	return nil
}

// checkStart checks the start of the frame of names whose first line has a number, in a file of
// starts. Before is the line before it.
func (v *verifier) checkStart(found *findings, names *segment.Names, file string, line int64, before, first string) {
	starts := names.Starts()
	if starts == nil {
		return
	}
	n := 0 // of the shortest beginning that is after the line before
	for line > 0 && n < len(first) && first[:n] <= before {
		n++
	}
	frame := int(line / segment.DomainsPerFrame)
	if got := string(starts.At(frame)); got != first[:n] {
		found.wrong(v.key(file), fmt.Sprintf("line %d", frame), fmt.Sprintf("%q", first[:n]), fmt.Sprintf("%q", got))
	}
}

// describeOrdinal describes the result of a lookup in an error.
func describeOrdinal(o uint32) string {
	if o == mph.Absent {
		return "none"
	}
	return fmt.Sprint(o)
}
