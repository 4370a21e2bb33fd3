package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/urlake/urlake/lake/urlnorm"
)

// MaxSearched is the number of row groups after which a page of the datasets that hold a URL ends.
const MaxSearched = 256

// URLDatasetsPage is one page of the datasets that hold one URL.
type URLDatasetsPage struct {
	Answer
	// URL is canonical, URLID its url_id.
	URL   string
	URLID uint64
	// Datasets are those of this page, by id.
	Datasets []URLTotals
	// StoppedBy names the cap that ended the page: "row_groups" or "deadline". The page is complete
	// up to Cursor, and may be empty.
	StoppedBy string
}

// URLTotals sums up the rows that a dataset has of a URL. All numbers are exact.
type URLTotals struct {
	ID   uint32
	Name string
	Rows int64
	// FirstTS and LastTS are the first and the last time of the rows, if HasTS.
	FirstTS, LastTS int64
	HasTS           bool
}

// URLDatasets lists the datasets that hold exactly this URL, starting at cursorText. An empty
// cursor starts at the beginning. The URL is canonical.
func (s *Snapshot) URLDatasets(ctx context.Context, u urlnorm.URL, cursorText string) (*URLDatasetsPage, error) {
	early, cancel := context.WithTimeoutCause(ctx, s.server.opt.Deadline, ErrDeadline)
	defer cancel()
	page, err := s.urlDatasets(early, u, cursorText)
	return page, deadline(early, err)
}

func (s *Snapshot) urlDatasets(ctx context.Context, u urlnorm.URL, cursorText string) (*URLDatasetsPage, error) {
	v, err := s.view(ctx)
	if err != nil {
		return nil, err
	}
	r, err := s.resolve(ctx, v, Target{Host: u.Host})
	if err != nil {
		return nil, err
	}
	from := uint32(0)
	name := r.domain + "\x00" + u.String()
	if cursorText != "" {
		if from, err = s.datasetAfter(cursorText, cursorURL, name); err != nil {
			return nil, err
		}
	}
	page := &URLDatasetsPage{Answer: s.answer(v, r), URL: u.String(), URLID: urlnorm.URLID([]byte(u.String()))}
	key := pageOf(u)
	groups := 0
	for {
		of, err := s.domainPage(ctx, v, r, from)
		for at := 0; err == nil && at < len(of.Datasets) && groups < MaxSearched; {
			some := of.Datasets[at:min(at+searchesAtOnce, len(of.Datasets))]
			var done, searched int
			done, searched, err = s.searchDatasets(ctx, v, r, key, some, MaxSearched-groups, page)
			groups += searched
			if at += done; done > 0 {
				from = some[done-1].ID + 1
			}
		}
		switch {
		case err != nil && groups > 0 && errors.Is(deadline(ctx, err), ErrDeadline):
			page.StoppedBy = "deadline"
		case err != nil:
			return nil, err
		case of.Cursor == "" && (len(of.Datasets) == 0 || of.Datasets[len(of.Datasets)-1].ID < from):
			return page, nil
		case groups >= MaxSearched:
			page.StoppedBy = "row_groups"
		default:
			continue
		}
		page.Cursor = s.datasetCursor(cursorURL, name, from-1)
		return page, nil
	}
}

// searchDatasets searches a URL in some datasets at once, and adds those that hold it to page. It
// returns how many datasets it has done, the first ones, and how many row groups these have. They
// are fewer than all with an error, and if some have as many row groups as it is to search at most.
func (s *Snapshot) searchDatasets(
	ctx context.Context, v *view, r resolved, key *rowPage, datasets []DatasetTotals, most int, page *URLDatasetsPage,
) (done, groups int, err error) {
	lists := make([][]piece, len(datasets))
	group, groupCtx := newGroup(ctx)
	for i := range datasets {
		group.Go(func() (err error) {
			lists[i], err = s.pieces(groupCtx, v, r, datasets[i].ID)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return 0, 0, err
	}
	for i, n := 0, 0; i < len(lists); i++ {
		if n += len(lists[i]); n >= most {
			lists, datasets = lists[:i+1], datasets[:i+1]
		}
	}
	all := slices.Concat(lists...)
	found, searched := make([]urlTotals, len(all)), make([]bool, len(all))
	group, groupCtx = newGroup(ctx)
	group.SetLimit(searchesAtOnce)
	for i := range all {
		group.Go(func() error {
			err := found[i].find(groupCtx, newPager(s, 0), &all[i], key)
			searched[i] = err == nil
			return err
		})
	}
	err = group.Wait()
	for i, d := range datasets {
		n := len(lists[i])
		if slices.Contains(searched[groups:groups+n], false) {
			break
		}
		var sum urlTotals
		for at := groups; at < groups+n; at++ {
			sum.merge(&found[at])
		}
		done, groups = done+1, groups+n
		if sum.rows > 0 {
			page.Datasets = append(page.Datasets, URLTotals{
				ID: d.ID, Name: d.Name, Rows: sum.rows, FirstTS: sum.first, LastTS: sum.last, HasTS: sum.hasTS,
			})
		}
	}
	return done, groups, err
}

// pieces returns the rows of a domain in a dataset.
func (s *Snapshot) pieces(ctx context.Context, v *view, r resolved, dataset uint32) (pieces []piece, err error) {
	of, err := s.planned(ctx, v, r.key, dataset)
	if err != nil {
		return nil, err
	}
	err = s.each(ctx, func(i int) bool { return of[i].rows > 0 }, func(ctx context.Context, i int) error {
		return of[i].load(ctx, s.segments[i])
	})
	for i := range of {
		if of[i].rows > 0 {
			pieces = appendPieces(pieces, i, dataset, of[i].tuples)
		}
	}
	return pieces, err
}

// find adds the rows of pc that have the URL of the only row of key.
func (t *urlTotals) find(ctx context.Context, g *pager, pc *piece, key *rowPage) error {
	lower, upper := boundsOf(key, 0)
	if err := g.fetch(ctx, pc, lower, upper, 0, 0); err != nil {
		return err
	}
	lo, err := g.search(ctx, pc, pc.tuple.FirstRow, pc.end(), lower)
	if err != nil {
		return err
	}
	hi, err := g.search(ctx, pc, lo, pc.end(), upper)
	if err != nil || lo == hi {
		return err
	}
	return t.add(ctx, g, pc, new(Selection), lo, hi)
}

// merge adds other rows of the same URL.
func (t *urlTotals) merge(o *urlTotals) {
	t.rows += o.rows
	t.addTime(o.first, o.hasTS)
	t.addTime(o.last, o.hasTS)
}

// pageOf is a page of one row, which has the URL.
func pageOf(u urlnorm.URL) *rowPage {
	return &rowPage{
		hosts: []string{strings.Clone(u.Host)}, hostEnds: []int32{1}, schemes: []string{strings.Clone(u.Scheme)},
		port: []int32{u.Port}, paths: []byte(u.PathQuery), pathEnds: []uint32{uint32(len(u.PathQuery))},
	}
}
