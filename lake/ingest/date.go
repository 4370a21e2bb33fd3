package ingest

import "github.com/urlake/urlake/lake/ingest/dated"

// OnDate returns the spec with its date in the place of all placeholders, and without Date, so that
// it equals that of an ingest which names the inputs and the batch of that date itself. A Spec
// without a date is returned as it is.
func (s *Spec) OnDate() (Spec, error) {
	out := *s
	if s.Date == "" {
		return out, nil
	}
	out.Date, out.DateZone, out.DateOffset = "", "", ""
	lists := []*[]string{&out.Inputs, &out.Manifests, &out.Include, &out.Exclude}
	if err := dated.Expand(s.Date, s.DateZone, s.DateOffset, &out.Batch, lists...); err != nil {
		return Spec{}, &InputError{Reason: err.Error(), Err: err}
	}
	return out, nil
}
