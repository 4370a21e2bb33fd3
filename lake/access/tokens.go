package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
)

const (
	// tokenPrefix begins every token, so that programs that search for secrets know one.
	tokenPrefix = "urlake_"
	// tokenBytes is how many random bytes a token has.
	tokenBytes = 32
	// MaxTokens is the most tokens that a lake can have, with those that have ended.
	MaxTokens = 100_000
	// keepEnded is how long a token that has expired or was revoked stays on record.
	keepEnded = 90 * 24 * time.Hour
)

// Why a token is not taken.
var (
	ErrUnknownToken = errors.New("the token is not known")
	ErrExpired      = errors.New("the token has expired")
	ErrRevoked      = errors.New("the token was revoked")
)

// Token is a token on record. The token itself is not: it is random, 256 bits, so its SHA-256 can
// neither be reversed nor guessed. A salt and a slow hash protect what people make up; here they
// would only make every request slower.
type Token struct {
	// ID names the token in lists. It says nothing about the token.
	ID string `json:"id"`
	// Name is that of the principal who presents it.
	Name    string    `json:"name"`
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
	// Expires is when it ends, nil for never. Revoked is when it was revoked, nil if it was not.
	Expires *time.Time `json:"expires,omitempty"`
	Revoked *time.Time `json:"revoked,omitempty"`
}

// Ended returns why a token is not taken at a time: ErrExpired or ErrRevoked, or nil.
func (t *Token) Ended(now time.Time) error {
	switch {
	case t.Revoked != nil:
		return ErrRevoked
	case t.Expires != nil && !now.Before(*t.Expires):
		return ErrExpired
	}
	return nil
}

// Tokens are the tokens of a lake, in the order in which they were made. One that LoadTokens
// returned is immutable.
type Tokens struct {
	lake.KeyedHeader
	// Generation grows by one with every change.
	Generation uint64  `json:"generation,omitempty"`
	Tokens     []Token `json:"tokens"`

	byHash map[[sha256.Size]byte]*Token
}

var (
	tokenID   = regexp.MustCompile(`^[0-9a-f]{12}$`)
	tokenText = regexp.MustCompile(`^` + tokenPrefix + `[A-Za-z0-9_-]{43}$`)
)

func (t *Tokens) check() error {
	t.byHash = make(map[[sha256.Size]byte]*Token, len(t.Tokens))
	for i := range t.Tokens {
		tok := &t.Tokens[i]
		sum, err := hex.DecodeString(tok.SHA256)
		if err != nil || len(sum) != sha256.Size || !tokenID.MatchString(tok.ID) || CheckName(tok.Name) != nil || tok.Created.IsZero() {
			return codec.Corrupt(TokensKey, fmt.Sprintf("tokens[%d]", i), -1, "an id, a name, a SHA-256 and a time", tok.ID)
		}
		t.byHash[[sha256.Size]byte(sum)] = tok
	}
	return nil
}

// Find returns the token on record for the text that a client presents. The error is
// ErrUnknownToken, ErrExpired or ErrRevoked.
//
// It takes as long for a text that is nearly a token as for any other: what is compared are hashes,
// of which a client cannot choose the first bytes.
func (t *Tokens) Find(text string, now time.Time) (*Token, error) {
	if !tokenText.MatchString(text) {
		return nil, ErrUnknownToken
	}
	tok, ok := t.byHash[sha256.Sum256([]byte(text))]
	if !ok {
		return nil, ErrUnknownToken
	}
	if err := tok.Ended(now); err != nil {
		return nil, err
	}
	return tok, nil
}

// LoadTokens reads the tokens of a lake. A lake without the document has none.
func LoadTokens(ctx context.Context, store blob.Store) (*Tokens, error) {
	t, _, err := loadTokens(ctx, store)
	return t, err
}

func loadTokens(ctx context.Context, store blob.Store) (*Tokens, string, error) {
	least, err := copiedTokens(ctx, store) // first, as it is written last
	if err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return nil, "", err
	}
	t := &Tokens{Tokens: []Token{}}
	etag, err := lake.LoadKeyed(ctx, store, TokensKey, format, t)
	if err == nil {
		err = t.check()
	}
	if err == nil && etag != "" { // without the document there are no tokens
		err = notOlder(TokensKey, least, t.Generation)
	}
	return t, etag, err
}

// copiedTokens returns the generation of the copy of the tokens, 0 if there is none.
func copiedTokens(ctx context.Context, store blob.Store) (generation uint64, err error) {
	t := &Tokens{}
	if _, err = lake.LoadKeyed(ctx, store, TokensCopyKey, format, t); err != nil {
		return 0, err
	}
	return t.Generation, nil
}

// save replaces the stored tokens, if they have that ETag, and writes the copy.
func (t *Tokens) save(ctx context.Context, store blob.Store, etag string) error {
	least, err := copiedTokens(ctx, store)
	if err != nil && !errors.Is(err, codec.ErrCorrupt) {
		return err
	}
	t.Generation = max(t.Generation, least) + 1
	if _, err := lake.SaveKeyed(ctx, store, TokensKey, format, t, conditionOf(etag)); err != nil {
		return err
	}
	return t.keepCopy(ctx, store)
}

// keepCopy writes the copy unless there is one of this generation or a later one.
func (t *Tokens) keepCopy(ctx context.Context, store blob.Store) error {
	if t.Generation == 0 {
		return nil
	}
	return update(ctx, TokensCopyKey, func() (bool, error) {
		have := &Tokens{}
		etag, err := lake.LoadKeyed(ctx, store, TokensCopyKey, format, have)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) || err == nil && etag != "" && have.Generation >= t.Generation {
			return false, err
		}
		doc := *t
		_, err = lake.SaveKeyed(ctx, store, TokensCopyKey, format, &doc, conditionOf(etag))
		return true, err
	})
}

// NewToken makes a token for a principal and returns its text, which is kept nowhere, and what is
// on record of it. Expires is nil for a token that does not.
func NewToken(ctx context.Context, store blob.Store, name string, now time.Time, expires *time.Time) (text string, rec Token, err error) {
	if err := CheckName(name); err != nil {
		return "", rec, err
	}
	now = now.UTC().Truncate(time.Second)
	if expires != nil && !now.Before(*expires) {
		return "", rec, fmt.Errorf("the token would expire at %s, which is past", expires.Format(time.RFC3339))
	}
	random := make([]byte, tokenBytes+6)
	if _, err := rand.Read(random); err != nil {
		return "", rec, err
	}
	text = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:tokenBytes])
	sum := sha256.Sum256([]byte(text))
	rec = Token{ID: hex.EncodeToString(random[tokenBytes:]), Name: name, SHA256: hex.EncodeToString(sum[:]), Created: now}
	if expires != nil {
		at := expires.UTC().Truncate(time.Second)
		rec.Expires = &at
	}
	err = changeTokens(ctx, store, now, func(t *Tokens) (bool, error) {
		if _, ok := t.byHash[sum]; ok {
			return false, nil // an earlier put took effect
		}
		if len(t.Tokens) >= MaxTokens {
			return false, fmt.Errorf("the lake has %d tokens, which is the most; those that were revoked leave after 90 days", len(t.Tokens))
		}
		t.Tokens = append(t.Tokens, rec)
		return true, nil
	})
	return text, rec, err
}

// Revoke ends tokens: those of a principal, or only the one with that id. It returns those that it
// ended, or that the caller's earlier attempt did.
func Revoke(ctx context.Context, store blob.Store, name, id string, now time.Time) (ended []Token, err error) {
	now = now.UTC().Round(0) // not of seconds, as it tells this call from others
	err = changeTokens(ctx, store, now, func(t *Tokens) (changed bool, err error) {
		ended = nil
		for i := range t.Tokens {
			tok := &t.Tokens[i]
			if tok.Name != name || id != "" && tok.ID != id {
				continue
			}
			if tok.Revoked == nil && tok.Ended(now) == nil {
				tok.Revoked, changed = &now, true
			} else if tok.Revoked == nil || !tok.Revoked.Equal(now) {
				continue
			}
			ended = append(ended, *tok)
		}
		return changed, nil
	})
	return ended, err
}

// RevokeAll ends every token: it replaces the document by an empty one, also if it is damaged. One
// of a newer format stays.
func RevokeAll(ctx context.Context, store blob.Store) (ended int, err error) {
	err = update(ctx, TokensKey, func() (bool, error) {
		t, etag, err := loadTokens(ctx, store)
		if err != nil && !errors.Is(err, codec.ErrCorrupt) {
			return false, err
		}
		if err == nil && len(t.Tokens) == 0 {
			return false, t.keepCopy(ctx, store)
		}
		if err == nil {
			ended = len(t.Tokens)
		}
		none := &Tokens{Generation: t.Generation, Tokens: []Token{}}
		return true, none.save(ctx, store, etag)
	})
	return ended, err
}

// changeTokens changes the document. Tokens that ended long ago leave it.
func changeTokens(ctx context.Context, store blob.Store, now time.Time, change func(*Tokens) (bool, error)) error {
	return update(ctx, TokensKey, func() (bool, error) {
		t, etag, err := loadTokens(ctx, store)
		if err != nil {
			return false, err
		}
		changed, err := change(t)
		if err != nil {
			return false, err
		}
		if !changed { // perhaps the change was made, and the copy was not
			return false, t.keepCopy(ctx, store)
		}
		t.Tokens = slices.DeleteFunc(t.Tokens, func(tok Token) bool {
			until := tok.Expires
			if tok.Revoked != nil {
				until = tok.Revoked
			}
			return until != nil && now.Sub(*until) > keepEnded
		})
		return true, t.save(ctx, store, etag)
	})
}
