package many

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake/ingest"
)

// Previews is ingest.Previews for an ingest of many datasets. fails says why one of these ingests
// would fail, "" if the previews show no reason.
func Previews(ctx context.Context, spec Spec, show func(*ingest.Preview) error) (
	all ingest.PreviewTotals, fails string, err error,
) {
	datasets, notes, err := Datasets(ctx, spec)
	if err != nil {
		return all, "", err
	}
	var objects []ingest.Object
	var of []string // the dataset of each
	refused := 0
	for _, d := range datasets {
		if d.Refused != "" {
			refused++
			if err := show(&ingest.Preview{Dataset: d.Name, Object: d.From, Refused: d.Refused}); err != nil {
				return all, "", err
			}
		}
		for _, o := range d.Objects {
			objects, of = append(objects, o), append(of, d.Name)
		}
	}
	n := 0
	each := map[string]*ingest.PreviewTotals{}
	all, err = ingest.PreviewObjects(ctx, &spec.Spec, objects, func(p *ingest.Preview) error {
		p.Dataset = of[n]
		n++
		if each[p.Dataset] == nil {
			each[p.Dataset] = &ingest.PreviewTotals{}
		}
		each[p.Dataset].Add(p)
		return show(p)
	})
	all.Notes = notes
	all.Objects += refused
	all.Refused += refused
	if all.Refused > 0 {
		return all, all.Fails(&spec.Spec), err
	}
	for _, d := range datasets {
		if t := each[d.Name]; t != nil && fails == "" {
			if why := t.Fails(&spec.Spec); why != "" {
				fails = fmt.Sprintf("dataset %q: %s", d.Name, why)
			}
		}
	}
	return all, fails, err
}
