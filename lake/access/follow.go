package access

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

// ErrNotRead means that a Follower has read nothing yet.
var ErrNotRead = errors.New("who may read the lake is not known yet")

// Follower follows the list of readers and the tokens of a lake. It is safe for concurrent use.
type Follower struct {
	store blob.Store

	mu        sync.Mutex // of Poll
	listTag   string     // ETag of the list that was read, "" for none
	tokensTag string
	seen      bool // there was a list: one that is missing is lost
	// listGeneration and tokensGeneration are the generations of the newest documents read so far.
	// Older documents are not followed.
	listGeneration, tokensGeneration uint64
	list                             atomic.Pointer[listState]
	tokens                           atomic.Pointer[tokensState]
}

// listState is a list, or why there is none that can be trusted.
type listState struct {
	list *List
	err  error
}

type tokensState struct {
	tokens *Tokens
	err    error
}

// NewFollower returns a follower of the lake in store. It reads nothing before Poll.
func NewFollower(store blob.Store) *Follower { return &Follower{store: store} }

// Poll reads the documents that have changed. If the store does not answer, the error is returned
// and all stays as it was. Damage and newer formats are not errors of Poll but of List and Tokens,
// until the document is mended: what may have been forbidden is not allowed because nobody can
// tell.
func (f *Follower) Poll(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(f.pollList(ctx), f.pollTokens(ctx))
}

func (f *Follower) pollList(ctx context.Context) error {
	if same, err := f.same(ctx, ListKey, f.listTag, f.list.Load() != nil); same || err != nil {
		return err
	}
	l, tag, err := load(ctx, f.store)
	if err == nil && tag != "" {
		err = notOlder(ListKey, f.listGeneration, l.Generation)
	}
	if err == nil && tag == "" && f.seen {
		err = codec.Corrupt(ListKey, "object", -1, "one that exists, since it was read before", "none")
	}
	if err != nil && !lasting(err) {
		return err
	}
	f.listTag, f.seen = tag, f.seen || tag != ""
	if err != nil {
		l = nil
	} else {
		f.listGeneration = l.Generation
	}
	f.list.Store(&listState{l, err})
	return nil
}

func (f *Follower) pollTokens(ctx context.Context) error {
	if same, err := f.same(ctx, TokensKey, f.tokensTag, f.tokens.Load() != nil); same || err != nil {
		return err
	}
	t, tag, err := loadTokens(ctx, f.store)
	if err == nil && tag != "" {
		err = notOlder(TokensKey, f.tokensGeneration, t.Generation)
	}
	if err != nil && !lasting(err) {
		return err
	}
	f.tokensTag = tag
	if err != nil {
		t = nil
	} else {
		f.tokensGeneration = max(f.tokensGeneration, t.Generation)
	}
	f.tokens.Store(&tokensState{t, err})
	return nil
}

// same reports whether the object is the one that was read. One that was missing is read again: the
// answer costs as much.
func (f *Follower) same(ctx context.Context, key, tag string, read bool) (bool, error) {
	if !read || tag == "" {
		return false, nil
	}
	info, err := f.store.Stat(ctx, key)
	if errors.Is(err, blob.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.ETag == tag, err
}

// lasting reports whether reading again would give the same error.
func lasting(err error) bool { return errors.Is(err, codec.ErrCorrupt) || codec.IsFormat(err) }

// List returns the list as it was last read. The error says why nobody can tell what it is.
func (f *Follower) List() (*List, error) {
	s := f.list.Load()
	if s == nil {
		return nil, ErrNotRead
	}
	return s.list, s.err
}

// Tokens returns the tokens as they were last read. The error says why nobody can tell what they
// are.
func (f *Follower) Tokens() (*Tokens, error) {
	s := f.tokens.Load()
	if s == nil {
		return nil, ErrNotRead
	}
	return s.tokens, s.err
}
