package lake

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/urlnorm"
)

// Rules are what turns an input into rows. A lake pins them, so another program, with another
// public suffix list, changes nothing by itself: the registry names the rules by which new rows are
// made, each batch record and version those by which its rows were made.
type Rules struct {
	// CanonicalForm is urlnorm.Form of the program that made the rows.
	CanonicalForm string `json:"canonical_form"`
	// PublicSuffix is the identity of the public suffix list. The list decides the domain of a URL,
	// by which rows are sorted and partitioned. LoadSuffixList returns it.
	PublicSuffix string `json:"public_suffix_list"`
}

// CurrentRules returns the rules of this program. New lakes get them.
func CurrentRules() Rules { return RulesOf(urlnorm.BuiltinSuffixes()) }

// RulesOf returns the rules of this program with a public suffix list.
func RulesOf(list *urlnorm.SuffixList) Rules {
	return Rules{CanonicalForm: urlnorm.Form, PublicSuffix: list.Identity()}
}

// FormError says that rows have a canonical form that this program does not make. It can neither
// add rows to them nor look them up.
type FormError struct{ Form string }

func (e *FormError) Error() string {
	return fmt.Sprintf("the canonical form is %s and this program makes %s only; use a program that makes %s, "+
		"or ingest everything into a new lake", e.Form, urlnorm.Form, e.Form)
}

// CheckForm returns a *FormError unless this program makes the canonical form of the rules.
func CheckForm(r Rules) error {
	if r.CanonicalForm != urlnorm.Form {
		return &FormError{Form: r.CanonicalForm}
	}
	return nil
}

// MissingListError says that a public suffix list is neither in the lake nor compiled in. Lakes
// from before lists were objects have none; it is added by the next ingest of a program that has
// the list.
type MissingListError struct{ Identity string }

func (e *MissingListError) Error() string {
	return fmt.Sprintf("%s: no such object: the lake follows the public suffix list %q, which is not this program's; "+
		`"starter rules update --lake URL" moves the lake to this program's list, with --psl FILE to that of a file`,
		SuffixListKey(e.Identity), e.Identity)
}

// RulesChangedError says that the lake's rules are not those that SetRules was to replace.
type RulesChangedError struct{ Want, Got Rules }

func (e *RulesChangedError) Error() string {
	return fmt.Sprintf("the lake's public suffix list is %q, and no longer %q: somebody else has changed it; look again",
		e.Got.PublicSuffix, e.Want.PublicSuffix)
}

// ReadRules returns the rules that the registry names, by which new rows are made. They are zero in
// a new lake, which gets them with its first dataset.
func ReadRules(ctx context.Context, store blob.Store) (Rules, error) {
	r, etag, err := read[registry](ctx, store, RegistryKey)
	if err == nil && etag == "" {
		r, _, err = readNew[registry](ctx, store, RegistryKey)
	}
	return r.Rules, err
}

// LoadRules returns the rules that the registry names and their public suffix list. Those of a new
// lake are this program's. The error is a *FormError or a *MissingListError if this program cannot
// apply them.
func LoadRules(ctx context.Context, store blob.Store) (Rules, *urlnorm.SuffixList, error) {
	r, err := ReadRules(ctx, store)
	if err != nil {
		return r, nil, err
	}
	if r == (Rules{}) {
		r = CurrentRules()
	}
	if err := CheckForm(r); err != nil {
		return r, nil, err
	}
	list, err := LoadSuffixList(ctx, store, r.PublicSuffix)
	return r, list, err
}

// SetRules gives the lake a public suffix list, by which rows are made from now on, and returns
// without moving the rows that are there; the next publish does that. From are the rules that are
// replaced: if the registry names others, the error is a *RulesChangedError. From is zero for a
// lake without a registry. If the registry names the list already, only the list's object is
// written again.
//
// Both lists are objects of the lake before the registry changes, unless the old one is neither
// there nor this program's.
func SetRules(ctx context.Context, store blob.Store, from Rules, to *urlnorm.SuffixList) error {
	// The object is written in any case: it may be damaged.
	if _, err := store.Put(ctx, SuffixListKey(to.Identity()), to.Encode(), blob.Condition{}); err != nil {
		return err
	}
	err := update(ctx, store, RegistryKey, func(r *registry) (bool, error) {
		if r.Rules == RulesOf(to) {
			return false, nil
		}
		if r.Rules != from {
			return false, &RulesChangedError{Want: from, Got: r.Rules}
		}
		if err := r.prepare(ctx, store, to); err != nil {
			return false, err
		}
		r.Rules = RulesOf(to)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("set the lake's rules: %w", err)
	}
	return nil
}

// prepare makes sure that r is a document to which this program may write, before a change of it.
// A new document gets the list. If the document names the list of this program, the list is an
// object of the lake, which it is not in lakes from before lists were objects.
func (r *registry) prepare(ctx context.Context, store blob.Store, list *urlnorm.SuffixList) error {
	if r.Format == 0 {
		*r = registry{Format: registryFormat, Rules: RulesOf(list), NextID: 1, Datasets: []Dataset{}}
		return saveSuffixList(ctx, store, list)
	}
	if err := CheckForm(r.Rules); err != nil {
		return err
	}
	if own := urlnorm.BuiltinSuffixes(); r.Rules.PublicSuffix == own.Identity() {
		return saveSuffixList(ctx, store, own)
	}
	return nil
}

// saveSuffixList writes the object of a list unless it is there. If the reply to the put is lost,
// the object is looked for again.
func saveSuffixList(ctx context.Context, store blob.Store, list *urlnorm.SuffixList) error {
	data := list.Encode()
	key := SuffixListKey(list.Identity())
	var failure error
	for {
		info, err := store.Stat(ctx, key)
		switch {
		case err == nil && info.Size == int64(len(data)):
			return nil
		case failure != nil:
			return failure
		case err != nil && !errors.Is(err, blob.ErrNotExist):
			return err
		}
		if _, failure = store.Put(ctx, key, data, blob.Condition{}); failure == nil {
			return nil
		}
	}
}

// readSuffixList reads the object of the list with that identity. If there is none, the error is a
// *MissingListError.
func readSuffixList(ctx context.Context, store blob.Store, identity string) (*urlnorm.SuffixList, error) {
	data, _, err := store.Get(ctx, SuffixListKey(identity))
	if errors.Is(err, blob.ErrNotExist) {
		return nil, &MissingListError{Identity: identity}
	}
	if err != nil {
		return nil, err
	}
	list, err := urlnorm.DecodeSuffixList(data, identity)
	if err != nil {
		return nil, codec.Corrupt(SuffixListKey(identity), "list", -1, identity, err) // package remedy says how to mend it
	}
	return list, nil
}

// CheckSuffixList reads the object of the list with that identity. An object that is damaged, or
// missing and not this program's list, is a *codec.CorruptError.
func CheckSuffixList(ctx context.Context, store blob.Store, identity string) error {
	own := urlnorm.BuiltinSuffixes()
	list, err := readSuffixList(ctx, store, identity)
	var missing *MissingListError
	switch {
	case errors.As(err, &missing) && identity == own.Identity():
		return nil // the next ingest adds it
	case errors.As(err, &missing):
		return codec.Corrupt(SuffixListKey(identity), "object", -1, "one that exists", "none")
	case err == nil && identity == own.Identity() && !list.SameRules(own):
		return codec.Corrupt(SuffixListKey(identity), "rules", -1, "those of this program, as the identity says", "others")
	}
	return err
}

// RestoreSuffixList writes the object of the list with that identity again if it is damaged and the
// list is this program's. A damaged or missing object of another list is a *codec.CorruptError.
func RestoreSuffixList(ctx context.Context, store blob.Store, identity string) (restored bool, err error) {
	own := urlnorm.BuiltinSuffixes()
	err = CheckSuffixList(ctx, store, identity)
	if !errors.Is(err, codec.ErrCorrupt) || identity != own.Identity() {
		return false, err
	}
	_, err = store.Put(ctx, SuffixListKey(identity), own.Encode(), blob.Condition{})
	return err == nil, err
}

// loadedLists are the lists that this process has read, by their identities. A lake has had few.
var loadedLists struct {
	sync.Mutex
	lists map[string]*urlnorm.SuffixList
}

// maxLoadedLists bounds loadedLists. A list takes half a megabyte.
const maxLoadedLists = 32

// LoadSuffixList returns the public suffix list with that identity: this program's, or that of an
// object of the lake. A list is read once in a process. If there is no such object, the error is a
// *MissingListError.
func LoadSuffixList(ctx context.Context, store blob.Store, identity string) (*urlnorm.SuffixList, error) {
	if own := urlnorm.BuiltinSuffixes(); identity == own.Identity() {
		return own, nil
	}
	loadedLists.Lock()
	list := loadedLists.lists[identity]
	loadedLists.Unlock()
	if list != nil {
		return list, nil
	}
	list, err := readSuffixList(ctx, store, identity)
	if err != nil {
		return nil, err
	}
	loadedLists.Lock()
	defer loadedLists.Unlock()
	if loadedLists.lists == nil || len(loadedLists.lists) >= maxLoadedLists {
		loadedLists.lists = map[string]*urlnorm.SuffixList{}
	}
	loadedLists.lists[identity] = list
	return list, nil
}
