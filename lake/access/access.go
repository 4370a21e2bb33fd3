// Package access keeps who may read which dataset of a lake: for every dataset its readers, and
// tokens, which say who somebody is. Servers that authenticate their clients follow both
// (Follower); "starter acl" and "starter token" change them.
//
//	access/datasets.json       readers of the datasets                    (mutable)
//	access/datasets.copy.json  copy of the first, to notice and mend its loss
//	access/tokens.json         hashes of tokens                           (mutable)
//	access/tokens.copy.json    copy of these, to notice that they were put back
//	registry/readers.json      says that there is a list                  (immutable)
//
// All are small sealed documents that are replaced by conditional put. docs/formats/access.md
// describes them.
//
// # Failing closed
//
// A lake without a list of readers is public, as all lakes were before there was one. A list that
// is damaged, of a newer format, or lost, which its copy or the mark shows, is an error for whoever
// would have to look into it: nobody reads what is not known to be public. A document that is older
// than its copy, or than an earlier reading of the same process, is an error too: it was put back
// from a backup. Unreadable tokens are an error for clients that present one.
//
// # Names
//
// A dataset is named by its name, which is given once and never to another dataset. So its readers
// can be set before its first batch is published. A principal is named by the name of its token, or
// by the subject that an identity provider gives it.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// Root is the folder of all documents of this package.
	Root = "access/"
	// ListKey is the key of the list of readers, CopyKey that of its copy, TokensKey that of the
	// tokens.
	ListKey   = Root + "datasets.json"
	CopyKey   = Root + "datasets.copy.json"
	TokensKey = Root + "tokens.json"
	// TokensCopyKey is the key of the copy of the tokens.
	TokensCopyKey = Root + "tokens.copy.json"
	// MarkKey is the key of the mark, which lies in another folder, so that it is not lost with the
	// list and its copy.
	MarkKey = "registry/readers.json"

	// format is the newest format version of the documents.
	// 1: first.
	format = 1

	// MaxReaders is the most names that the readers of one dataset can have.
	MaxReaders = 1000
	// updateRounds is how often a change is tried while others change the same document.
	updateRounds = 100
	updatePause  = 2 * time.Millisecond
)

var (
	// ErrBusy: others replaced a document before each of many attempts to do so.
	ErrBusy = errors.New("the document kept changing")

	// principal is the form of a name: that of a person or a program, an e-mail address, or the
	// subject of an identity provider.
	principal = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@:|/+=~-]{0,254}$`)
)

// Words that stand for readers where these are text, so that nobody can have them as a name: for
// everybody, for nobody, and for the readers of datasets that have none of their own.
const (
	Public  = "public"
	None    = "none"
	Default = "default"
)

// CheckName returns an error unless a principal can have this name.
func CheckName(name string) error {
	if !principal.MatchString(name) {
		return fmt.Errorf("%q is no name of a reader; use up to 255 letters, digits and . _ @ : | / + = ~ -, "+
			"with a letter or a digit first", name)
	}
	if name == Public || name == None || name == Default {
		return fmt.Errorf("%q is no name of a reader: the word has a meaning of its own", name)
	}
	return nil
}

// Readers are those who may read a dataset. The zero value is nobody.
type Readers struct {
	// Public lets everybody read, also those who say no name. Names are then empty.
	Public bool `json:"public,omitempty"`
	// Names are those of the principals who may read, ascending.
	Names []string `json:"names,omitempty"`
}

// ParseReaders parses "public", "none", or names that are separated by commas.
func ParseReaders(text string) (Readers, error) {
	switch text {
	case Public:
		return Readers{Public: true}, nil
	case None:
		return Readers{}, nil
	}
	names := strings.Split(text, ",")
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if err := CheckName(names[i]); err != nil {
			return Readers{}, err
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) > MaxReaders {
		return Readers{}, fmt.Errorf("%d readers; a dataset can name %d", len(names), MaxReaders)
	}
	return Readers{Names: names}, nil
}

func (r Readers) String() string {
	switch {
	case r.Public:
		return Public
	case len(r.Names) == 0:
		return None
	}
	return strings.Join(r.Names, ",")
}

// May reports whether the principal of that name, "" for one without a name, may read.
func (r *Readers) May(name string) bool {
	if r.Public || name == "" {
		return r.Public
	}
	_, ok := slices.BinarySearch(r.Names, name)
	return ok
}

func (r *Readers) equal(o Readers) bool {
	return r.Public == o.Public && slices.Equal(r.Names, o.Names)
}

func (r *Readers) check(key, section string) error {
	if r.Public && len(r.Names) > 0 || len(r.Names) > MaxReaders {
		return codec.Corrupt(key, section, -1, "public, or at most "+fmt.Sprint(MaxReaders)+" names", r.String())
	}
	for i, name := range r.Names {
		if CheckName(name) != nil || i > 0 && r.Names[i-1] >= name {
			return codec.Corrupt(key, section, -1, "names, ascending", name)
		}
	}
	return nil
}

// Dataset is a dataset that has readers of its own.
type Dataset struct {
	Name    string  `json:"name"`
	Readers Readers `json:"readers"`
}

// List says who may read which dataset. One that Load returned is immutable.
type List struct {
	lake.KeyedHeader
	// Generation grows by one with every change.
	Generation uint64 `json:"generation"`
	// Default has the readers of all datasets that are not in Datasets.
	Default Readers `json:"default"`
	// Datasets are ascending by name.
	Datasets []Dataset `json:"datasets"`

	named map[string]bool // by any readers
}

// open is the list of a lake that has none: everybody reads everything.
func open() *List { return &List{Default: Readers{Public: true}, Datasets: []Dataset{}} }

// check checks a decoded list and prepares it for use.
func (l *List) check(key string) error {
	if err := l.Default.check(key, "default"); err != nil {
		return err
	}
	l.named = map[string]bool{}
	for _, name := range l.Default.Names {
		l.named[name] = true
	}
	for i := range l.Datasets {
		d := &l.Datasets[i]
		section := fmt.Sprintf("datasets[%d]", i)
		if lake.CheckDatasetName(d.Name) != nil || i > 0 && l.Datasets[i-1].Name >= d.Name {
			return codec.Corrupt(key, section, -1, "names of datasets, ascending", d.Name)
		}
		if err := d.Readers.check(key, section); err != nil {
			return err
		}
		for _, name := range d.Readers.Names {
			l.named[name] = true
		}
	}
	return nil
}

// Of returns the readers of a dataset, and whether it has readers of its own.
func (l *List) Of(dataset string) (r *Readers, own bool) {
	i, ok := slices.BinarySearchFunc(l.Datasets, dataset, func(d Dataset, name string) int { return strings.Compare(d.Name, name) })
	if !ok {
		return &l.Default, false
	}
	return &l.Datasets[i].Readers, true
}

// May reports whether the principal of that name may read a dataset.
func (l *List) May(name, dataset string) bool {
	r, _ := l.Of(dataset)
	return r.May(name)
}

// All reports whether the principal of that name may read all datasets, also those that the lake
// does not have yet.
func (l *List) All(name string) bool {
	return l.Default.May(name) && !slices.ContainsFunc(l.Datasets, func(d Dataset) bool { return !d.Readers.May(name) })
}

// Group returns the name if the list has it, and else "": whom the list does not name may read what
// those may who say no name. So there are as many groups as the list has names, and one more.
func (l *List) Group(name string) string {
	if l.named[name] {
		return name
	}
	return ""
}

// mark says that the lake has a list.
type mark struct{ lake.KeyedHeader }

// Load reads the list of a lake, an open one if there is none. Damage is a *codec.CorruptError, and
// so is a list that is missing while its copy or the mark is there.
func Load(ctx context.Context, store blob.Store) (*List, error) {
	l, _, err := load(ctx, store)
	return l, err
}

func load(ctx context.Context, store blob.Store) (l *List, etag string, err error) {
	// The copy is written last, so it is read first.
	before, _, err := loadCopy(ctx, store)
	least := before.Generation
	if errors.Is(err, codec.ErrCorrupt) {
		least, err = 0, nil
	}
	if err != nil {
		return nil, "", err
	}
	l = new(List)
	if etag, err = lake.LoadKeyed(ctx, store, ListKey, format, l); err != nil {
		return nil, etag, err
	}
	if etag != "" {
		return l, etag, cmp.Or(l.check(ListKey), notOlder(ListKey, least, l.Generation))
	}
	witness := CopyKey
	if _, err = store.Stat(ctx, witness); errors.Is(err, blob.ErrNotExist) {
		witness = MarkKey
		_, err = store.Stat(ctx, witness)
	}
	switch {
	case errors.Is(err, blob.ErrNotExist):
		return open(), "", nil
	case err != nil:
		return nil, "", err
	}
	// Both may have been written since.
	if etag, err = lake.LoadKeyed(ctx, store, ListKey, format, l); err != nil {
		return nil, etag, err
	}
	if etag == "" {
		return nil, "", codec.Corrupt(ListKey, "object", -1, "one that exists, since "+witness+" does", "none")
	}
	return l, etag, l.check(ListKey)
}

// notOlder returns a *codec.CorruptError if the generation of a document is lower than its copy's,
// or than in an earlier reading.
func notOlder(key string, least, generation uint64) error {
	if generation >= least {
		return nil
	}
	return codec.Corrupt(key, "generation", -1, fmt.Sprintf("at least %d, which the lake has had", least),
		fmt.Sprintf("%d: it was put back, perhaps from a backup", generation))
}

// Check reads all documents and returns what is wrong with each.
func Check(ctx context.Context, store blob.Store) (problems []error) {
	l, err := Load(ctx, store)
	_, copyTag, copied := loadCopy(ctx, store)
	_, tokens := LoadTokens(ctx, store)
	_, tokensCopied := copiedTokens(ctx, store)
	etag, marked := lake.LoadKeyed(ctx, store, MarkKey, format, &mark{})
	// The first change writes the list, then the mark, then the copy. It may be unfinished.
	if err == nil && marked == nil && etag == "" && (l.Generation > 1 || copyTag != "") {
		marked = codec.Corrupt(MarkKey, "object", -1, "one that exists, since "+ListKey+" does", "none")
	}
	for _, err := range []error{err, copied, tokens, tokensCopied, marked} {
		if err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// loadCopy reads the copy of the list. Its ETag is "" if there is none.
func loadCopy(ctx context.Context, store blob.Store) (l *List, etag string, err error) {
	l = new(List)
	if etag, err = lake.LoadKeyed(ctx, store, CopyKey, format, l); err == nil && etag != "" {
		err = l.check(CopyKey)
	}
	return l, etag, err
}

// Edit is a change of a List.
type Edit struct {
	// Default replaces the readers of datasets that have none of their own, unless it is nil.
	Default *Readers
	// Dataset is the dataset whose readers are replaced, unless it is "". Readers that are nil are
	// removed: the dataset then has those of the default.
	Dataset string
	Readers *Readers
}

// Change applies an edit and returns the list as it is then. An edit that changes nothing writes
// nothing but a copy that is missing.
func Change(ctx context.Context, store blob.Store, e Edit) (*List, error) {
	var l *List
	err := update(ctx, ListKey, func() (bool, error) {
		var etag string
		var err error
		if l, etag, err = load(ctx, store); err != nil {
			return false, err
		}
		if !l.apply(e) {
			return false, nil
		}
		l.Generation++
		if err := l.check(ListKey); err != nil {
			return false, fmt.Errorf("readers: %w", err)
		}
		_, err = lake.SaveKeyed(ctx, store, ListKey, format, l, conditionOf(etag))
		return true, err
	})
	if err != nil {
		return nil, err
	}
	return l, keepCopy(ctx, store, l)
}

// apply changes a list by an edit and reports whether it is another one then.
func (l *List) apply(e Edit) (changed bool) {
	if e.Default != nil && !l.Default.equal(*e.Default) {
		l.Default, changed = *e.Default, true
	}
	if e.Dataset == "" {
		return changed
	}
	i, ok := slices.BinarySearchFunc(l.Datasets, e.Dataset, func(d Dataset, name string) int { return strings.Compare(d.Name, name) })
	switch {
	case !ok && e.Readers == nil, ok && e.Readers != nil && l.Datasets[i].Readers.equal(*e.Readers):
		return changed
	case e.Readers == nil:
		l.Datasets = slices.Delete(l.Datasets, i, i+1)
	case ok:
		l.Datasets[i].Readers = *e.Readers
	default:
		l.Datasets = slices.Insert(l.Datasets, i, Dataset{e.Dataset, *e.Readers})
	}
	return true
}

// Repair replaces a list that is damaged or lost by its copy, or, if that is no better, by one that
// lets nobody read anything. It returns the list, and whether it is that of the copy. A list that
// is intact, or of a newer format, stays.
func Repair(ctx context.Context, store blob.Store) (l *List, fromCopy bool, err error) {
	l, etag, err := load(ctx, store)
	if err == nil {
		return l, false, keepCopy(ctx, store, l)
	}
	if !errors.Is(err, codec.ErrCorrupt) {
		return nil, false, err
	}
	l, copied, err := loadCopy(ctx, store)
	if err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return nil, false, err
	}
	if fromCopy = err == nil && copied != ""; !fromCopy {
		l = &List{Datasets: []Dataset{}}
	}
	l.Generation++
	if _, err := lake.SaveKeyed(ctx, store, ListKey, format, l, conditionOf(etag)); err != nil {
		return nil, false, err
	}
	return l, fromCopy, keepCopy(ctx, store, l)
}

// keepCopy writes the copy of a list unless there is one of it or of a later one, and the mark. A
// lake without a list needs neither.
func keepCopy(ctx context.Context, store blob.Store, l *List) error {
	if l.Generation == 0 {
		return nil
	}
	etag, err := lake.LoadKeyed(ctx, store, MarkKey, format, &mark{})
	if err == nil && etag == "" || errors.Is(err, codec.ErrCorrupt) {
		_, err = lake.SaveKeyed(ctx, store, MarkKey, format, &mark{}, conditionOf(etag))
	}
	if err != nil && !errors.Is(err, blob.ErrPrecondition) {
		return err
	}
	return update(ctx, CopyKey, func() (bool, error) {
		have, etag, err := loadCopy(ctx, store)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return false, err
		}
		if err == nil && etag != "" && have.Generation >= l.Generation {
			return false, nil
		}
		doc := *l
		_, err = lake.SaveKeyed(ctx, store, CopyKey, format, &doc, conditionOf(etag))
		return true, err
	})
}

// conditionOf is the condition that a document is still the one that was read, or still missing.
func conditionOf(etag string) blob.Condition {
	return blob.Condition{IfAbsent: etag == "", IfMatch: etag}
}

// update calls f, which reads a document and puts another one in its place, until another writer
// was not faster. F reports whether it tried a put. If a put failed in a way that leaves open
// whether it took effect, f is called once more: it finds its own change, or makes it.
func update(ctx context.Context, key string, f func() (tried bool, err error)) error {
	var failure error
	for round := range updateRounds {
		tried, err := f()
		switch {
		case err == nil, !tried:
			return err
		case errors.Is(err, blob.ErrPrecondition):
		case failure != nil:
			return failure
		default:
			failure = err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rand.N(updatePause * time.Duration(min(round+1, 32)))):
		}
	}
	return fmt.Errorf("%w: %s", ErrBusy, key)
}
