package catalog

import (
	"context"
	"fmt"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/urlnorm"
)

// RulesChangedError says that the lake's rules are not those that SetRules was to replace.
type RulesChangedError struct{ Want, Got lake.Rules }

func (e *RulesChangedError) Error() string {
	return fmt.Sprintf("the lake's public suffix list is %q, and no longer %q: somebody else has changed it; look again",
		e.Got.PublicSuffix, e.Want.PublicSuffix)
}

// ReadRules returns the rules that the registry names, by which new rows are made. They are zero in
// a new lake, which gets them with its first dataset.
func ReadRules(ctx context.Context, store blob.Store) (lake.Rules, error) {
	h, err := readHead(ctx, store)
	if err != nil {
		return lake.Rules{}, err
	}
	return h.Rules, nil
}

// LoadRules returns the rules that the registry names and their public suffix list. Those of a new
// lake are this program's. The error is a *FormError or a *MissingListError if this program cannot
// apply them.
func LoadRules(ctx context.Context, store blob.Store) (lake.Rules, *urlnorm.SuffixList, error) {
	r, err := ReadRules(ctx, store)
	if err != nil {
		return r, nil, err
	}
	if r == (lake.Rules{}) {
		r = lake.CurrentRules()
	}
	if err := lake.CheckForm(r); err != nil {
		return r, nil, err
	}
	list, err := lake.LoadSuffixList(ctx, store, r.PublicSuffix)
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
func SetRules(ctx context.Context, store blob.Store, from lake.Rules, to *urlnorm.SuffixList) error {
	if err := CheckFormats(ctx, store); err != nil {
		return fmt.Errorf("set the lake's rules: %w", err)
	}
	// The object is written in any case: it may be damaged.
	if _, err := store.Put(ctx, lake.SuffixListKey(to.Identity()), to.Encode(), blob.Condition{}); err != nil {
		return err
	}
	err := makeLive(ctx, store, func(h *head) (bool, error) {
		if h.Rules == lake.RulesOf(to) {
			return false, nil
		}
		if h.Rules != from {
			return false, &RulesChangedError{Want: from, Got: h.Rules}
		}
		if err := h.prepare(ctx, store, to); err != nil {
			return false, err
		}
		h.Rules = lake.RulesOf(to)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("set the lake's rules: %w", err)
	}
	return nil
}

// prepare makes sure that h is a document to which this program may write, before a change of it.
// A new document gets the list. If the document names the list of this program, the list becomes an
// object of the lake, in case it was lost.
func (h *head) prepare(ctx context.Context, store blob.Store, list *urlnorm.SuffixList) error {
	if h.Format == 0 {
		*h = head{Format: headFormat, Rules: lake.RulesOf(list), NextID: 1}
		return lake.SaveSuffixList(ctx, store, list)
	}
	if err := lake.CheckForm(h.Rules); err != nil {
		return err
	}
	if own := urlnorm.BuiltinSuffixes(); h.Rules.PublicSuffix == own.Identity() {
		if err := lake.SaveSuffixList(ctx, store, own); err != nil {
			return err
		}
	}
	return nil
}
