package segment

import (
	"fmt"
	"runtime/debug"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/urlake/urlake/indexbuild/segment/membership"
	"github.com/urlake/urlake/internal/mapped"
)

// Datasets returns the set of datasets that hold the domain with that ordinal. The caller owns it.
func (s *Segment) Datasets(ordinal uint32) (set *roaring.Bitmap, err error) {
	if s.member == nil {
		return nil, errPostingsOnly
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.roar)
	if int64(ordinal) >= s.info.Domains {
		return nil, fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	s.roar.Touch()
	return s.member.Datasets(ordinal)
}

// AppendDatasets appends the datasets that hold the domain with that ordinal to out, ascending.
func (s *Segment) AppendDatasets(out []uint32, ordinal uint32) (all []uint32, err error) {
	if s.member == nil {
		return nil, errPostingsOnly
	}
	defer mapped.Guard(debug.SetPanicOnFault(true), &err, s.roar)
	if int64(ordinal) >= s.info.Domains {
		return nil, fmt.Errorf("segment %s: ordinal %d of %d", s.info.Segment, ordinal, s.info.Domains)
	}
	s.roar.Touch()
	return s.member.AppendDatasets(out, ordinal)
}

// NewSetSums returns the sums over the sets of s of the numbers that of returns.
func (s *Segment) NewSetSums(of func(dataset uint32) uint64) *membership.Sums {
	return s.member.NewSums(of)
}
