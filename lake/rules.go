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

// SaveSuffixList writes the object of a list unless it is there. If the reply to the put is lost,
// the object is looked for again.
func SaveSuffixList(ctx context.Context, store blob.Store, list *urlnorm.SuffixList) error {
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
	var newer *urlnorm.ListFormatError
	if errors.As(err, &newer) {
		return nil, &codec.FormatError{Key: SuffixListKey(identity), Found: newer.Found, Known: newer.Known}
	}
	if err != nil {
		return nil, codec.Corrupt(SuffixListKey(identity), "list", -1, identity, err) // Explain says how to mend it
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
