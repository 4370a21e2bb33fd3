package indexbuild

import (
	"errors"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/urlake/urlake/indexbuild/keysort"
	"github.com/urlake/urlake/indexbuild/mph"
	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/indexbuild/segment/membership"
)

// writeDomains merges all domains and writes every file that depends on them: first
// domains.txt.zst, during the merge, then the perfect hash, the sets of datasets and the postings.
func (b *build) writeDomains() error {
	f, err := b.out.Create(segment.DomainsName)
	if err != nil {
		return err
	}
	defer f.Abort()
	domains := segment.NewDomainsWriter(f)
	sets := membership.NewWriter(b.opt.TempDir)
	defer sets.Close()
	atMost := int64(0)
	for i := range b.objects {
		atMost += b.objects[i].Domains()
	}
	reversed := keysort.NewReversed(b.opt.TempDir, b.opt.Memory/reversedShare, atMost)
	defer reversed.Close()
	// The seed depends on the batches, so that nobody can prepare domains that fall into the same
	// slot.
	seed := xxh3.HashString(segment.ID(b.batches, b.opt.Builder))
	hash := mph.NewBuilder(mph.Options{Seed: seed, Dir: b.opt.TempDir, Expect: atMost})
	defer hash.Close()
	b.entries = keysort.New(b.opt.TempDir, b.opt.Memory-b.opt.Memory/reversedShare, atMost, shardBits(atMost))

	err = b.mergeAll(func(w *window) error {
		if err := domains.AddLines(w.text, w.ends); err != nil {
			return err
		}
		if err := reversed.AddLines(w.text, w.ends); err != nil {
			return err
		}
		if err := sets.AddAll(w.sets, w.setEnds); err != nil {
			return err
		}
		for _, k := range w.keys {
			if err := hash.Add(k.ID, k.Check); err != nil {
				return err
			}
		}
		for i, k := range w.keys {
			if err := b.entries.Add(k, w.recordsOf(i)); err != nil {
				return err
			}
		}
		b.info.Entries += int64(len(w.sets))
		return b.ctx.Err()
	})
	if err != nil {
		return err
	}
	b.info.Domains = domains.Count()
	ff, err := domains.Finish()
	if err != nil {
		return err
	}
	return concurrently(
		func() error { return b.writeHash(hash, ff.XXH64) }, // first, because it finds colliding domains
		b.writePostings,
		func() error { return b.writeMembership(sets) },
		func() error { return f.FinishFrames(ff) },
		func() error { return b.writeStarts(segment.DomainStartsName, domains.Starts()) },
		func() error { return b.writeReversed(reversed) },
	)
}

// writeReversed writes domains.reversed.zst and domains.reversed.starts.zst.
func (b *build) writeReversed(domains *keysort.Reversed) error {
	f, err := b.out.Create(segment.ReversedName)
	if err != nil {
		return err
	}
	defer f.Abort()
	w := segment.NewDomainsWriter(f)
	if err := domains.Each(b.ctx, w.Add); err != nil {
		return err
	}
	ff, err := w.Finish()
	if err != nil {
		return err
	}
	if err := f.FinishFrames(ff); err != nil {
		return err
	}
	return b.writeStarts(segment.ReversedStartsName, w.Starts())
}

// writeStarts writes where the frames of a list of domains begin.
func (b *build) writeStarts(name string, starts *segment.Starts) error {
	f, err := b.out.Create(name)
	if err != nil {
		return err
	}
	defer f.Abort()
	ff, err := starts.Write(f)
	if err != nil {
		return err
	}
	return f.FinishFrames(ff)
}

// mergeAll merges the domains of all parts and passes them to sink. The records of a domain are in
// the order of the files.
func (b *build) mergeAll(sink func(*window) error) error {
	datasets := make([]uint32, len(b.files))
	for i := range b.files {
		datasets[i] = b.files[i].DatasetID
	}
	var sources []domainSource
	var domains []int64
	for i := range b.objects {
		o := &b.objects[i]
		for n, file := range o.files {
			s := o.Source(n, file)
			b.sources = append(b.sources, s)
			sources, domains = append(sources, s), append(domains, o.Parts()[n].Domains)
		}
	}
	if width := maxSources(); len(sources) > width {
		var err error
		if b.spool == nil {
			if b.spool, err = keysort.NewSpool(b.opt.TempDir); err != nil {
				return err
			}
		}
		if sources, err = narrow(b.ctx, sources, domains, datasets, b.spool, width); err != nil {
			return err
		}
	}
	return mergeDomains(b.ctx, sources, datasets, b.keyOf, sink)
}

func (b *build) writeMembership(sets *membership.Writer) error {
	f, err := b.out.Create(segment.MembershipName)
	if err != nil {
		return err
	}
	defer f.Abort()
	if err := sets.Write(f); err != nil {
		return err
	}
	return f.FinishMapped()
}

// writeHash writes the perfect hash of the domains, whose file has this xxh64.
func (b *build) writeHash(hash *mph.Builder, domains uint64) error {
	f, err := b.out.Create(segment.MPHFName)
	if err != nil {
		return err
	}
	defer f.Abort()
	if _, err := hash.Finish(b.ctx, f, domains); err != nil {
		var duplicate *mph.DuplicateError
		if errors.As(err, &duplicate) {
			return b.collision(segment.Key{ID: duplicate.Key, Check: duplicate.Check}, duplicate.Ordinals)
		}
		return err
	}
	return f.FinishMapped()
}

// collision returns the error for the domains with these ordinals. It merges all domains once more
// to find their names.
func (b *build) collision(k segment.Key, ordinals [2]uint32) error {
	e := &CollisionError{Key: k}
	first := int64(0)
	err := b.mergeAll(func(w *window) error {
		for i, o := range ordinals {
			if n := int64(o) - first; n >= 0 && n < int64(w.len()) {
				e.Domains[i] = string(w.domain(int(n)))
				var err error
				if e.Batches[i], err = b.batchesOf(w.recordsOf(int(n))); err != nil {
					return err
				}
			}
		}
		first += int64(w.len())
		return nil
	})
	if err != nil {
		return err
	}
	return e
}

// batchesOf returns the batches of a domain's records.
func (b *build) batchesOf(records []byte) ([]segment.BatchRef, error) {
	has := map[[2]string]bool{}
	name := func(dataset uint32, batch string) [2]string { return [2]string{strconv.Itoa(int(dataset)), batch} }
	var r postings.Record
	for len(records) > 0 {
		n := postings.RecordLen(records)
		if err := r.Decode(records[:n]); err != nil {
			return nil, err
		}
		for _, t := range r.Tuples {
			f := &b.files[t.FileID]
			has[name(f.DatasetID, f.Batch)] = true
		}
		records = records[n:]
	}
	var out []segment.BatchRef
	for _, ref := range b.batches {
		if has[name(ref.DatasetID, ref.Batch)] {
			out = append(out, ref)
		}
	}
	return out, nil
}
