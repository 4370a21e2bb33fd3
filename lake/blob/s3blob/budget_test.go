package s3blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/s3blob"
)

// faultyStore opens a store behind a proxy without faults yet.
func faultyStore(t *testing.T, seed uint64) (blob.Store, *testenv.S3Faults) {
	t.Helper()
	rawURL := testenv.S3(t)
	faults := testenv.NewS3Faults(t, testenv.NewS3Server(t), seed)
	t.Setenv("AWS_ENDPOINT_URL_S3", faults.Endpoint)
	store := openS3Store(t, rawURL)
	s3blob.HurryRetries(store)
	return store, faults
}

// operations are all operations of a store, on the object "k", of which it has size bytes.
func operations(store blob.Store, size int64) map[string]func(ctx context.Context) error {
	data := bytes.Repeat([]byte("x"), int(size))
	return map[string]func(ctx context.Context) error{
		"stat": func(ctx context.Context) error { _, err := store.Stat(ctx, "k"); return err },
		"get":  func(ctx context.Context) error { _, _, err := store.Get(ctx, "k"); return err },
		"read": func(ctx context.Context) error { _, err := store.ReadRange(ctx, "k", 1, size-1); return err },
		"open": func(ctx context.Context) error {
			r, err := store.Open(ctx, "k", 0, -1)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			return err
		},
		"put": func(ctx context.Context) error {
			_, err := store.Put(ctx, "k", data, blob.Condition{})
			return err
		},
		"put if absent": func(ctx context.Context) error {
			_, err := store.Put(ctx, "new", data, blob.Condition{IfAbsent: true})
			return err
		},
		"finish": func(ctx context.Context) error {
			w, err := store.Create(ctx, "k")
			if err != nil {
				return err
			}
			defer w.Abort()
			if _, err := w.Write(data); err != nil {
				return err
			}
			_, err = w.Finish()
			return err
		},
		"list": func(ctx context.Context) error {
			for _, err := range store.List(ctx, "k") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"delete": func(ctx context.Context) error { return store.Delete(ctx, "k") },
	}
}

// TestS3RequestBudget counts the requests of an operation that never succeeds: those of one layer.
// The error names the operation, the object and the reason.
func TestS3RequestBudget(t *testing.T) {
	store, faults := faultyStore(t, 1)
	const size, budget = 1000, 5
	for _, kind := range []testenv.S3Fault{
		testenv.ServerError, testenv.SlowDown, testenv.Hang, testenv.ResetBefore, testenv.LostReply,
		testenv.ResetBody, testenv.FlipUp,
	} {
		for name, do := range operations(store, size) {
			if kind == testenv.Hang && name != "read" && name != "put" {
				continue // each takes all its time
			}
			faults.Heal()
			if _, err := store.Put(t.Context(), "k", make([]byte, size), blob.Condition{}); err != nil {
				t.Fatal(err)
			}
			if err := store.Delete(t.Context(), "new"); err != nil {
				t.Fatal(err)
			}
			if kind == testenv.Hang {
				s3blob.HurryReplies(store, 200*time.Millisecond)
			}
			before, happened := faults.Requests(), faults.Happened()[kind]
			faults.Inject(1, nil, kind)
			err := do(t.Context())
			if kind == testenv.Hang {
				s3blob.HurryReplies(store, time.Minute)
			}
			requests := faults.Requests() - before
			if faults.Happened()[kind] == happened {
				continue // a kind that cannot happen to this operation
			}
			op, _, _ := strings.Cut(name, " ")
			least, most := budget, budget
			switch {
			case name == "put if absent" && kind == testenv.LostReply:
				least = 2 // it is there, so that the second is rejected
			case name == "put if absent" && kind == testenv.ResetBefore:
				most *= 2 // it looks whether a rejection without a reply was the reason
			case kind == testenv.ResetBody:
				most *= 3 // half of what is left arrives each time
			}
			if kind == testenv.ResetBefore || kind == testenv.LostReply {
				most++ // net/http sends a request again that a kept connection has not answered
			}
			switch {
			case err == nil:
				t.Errorf("%s with %v: no error", name, kind)
			case requests > most || requests < least:
				t.Errorf("%s with %v: %d requests, want %d to %d", name, kind, requests, least, most)
			case !strings.HasPrefix(err.Error(), op+" "+store.URL()+"/") && // a stream that breaks off is read
				!(kind == testenv.ResetBody && strings.HasPrefix(err.Error(), "read "+store.URL()+"/")):
				t.Errorf("%s with %v does not say what failed: %v", name, kind, err)
			case len(err.Error()) > 250:
				t.Errorf("%s with %v: %d bytes of text: %v", name, kind, len(err.Error()), err)
			}
			if errors.Is(err, blob.ErrNotExist) || errors.Is(err, blob.ErrPrecondition) && kind != testenv.LostReply {
				t.Errorf("%s with %v: %v", name, kind, err)
			}
		}
	}
}

// TestS3AttemptsAreShared lets four of five attempts of a read fail before the body and the fifth
// in it, again and again: what the SDK tries again and what is resumed have one budget.
func TestS3AttemptsAreShared(t *testing.T) {
	s, network := badNetwork(t)
	if _, err := s.Put(t.Context(), "k", make([]byte, 1000), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	for what, read := range operations(s, 1000) {
		if what != "get" && what != "read" && what != "open" {
			continue
		}
		requests := 0
		network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
			if requests++; requests%2 == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			gateway.ServeHTTP(&cutWriter{ResponseWriter: w, left: 0, end: hangUp}, r)
		})
		if err := read(t.Context()); err == nil || requests != 5 {
			t.Errorf("%s: %d requests, %v", what, requests, err)
		}
	}
}

// TestS3GetReadsDamageAgain flips bits of whole objects. Get notices, as the ETag is an MD5, and
// returns what is in the store. Where ETags are something else, it returns what it gets twice.
func TestS3GetReadsDamageAgain(t *testing.T) {
	store, faults := faultyStore(t, 2)
	data := bytes.Repeat([]byte("0123456789"), 50)
	if _, err := store.Put(t.Context(), "k", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	faults.Inject(0.3, nil, testenv.FlipDown, testenv.ShortBody)
	wrong := 0
	for range 200 {
		got, info, err := store.Get(t.Context(), "k")
		if err != nil || info.Key != "k" {
			t.Fatal(info, err)
		}
		if !bytes.Equal(got, data) || info.Size != int64(len(data)) {
			wrong++ // five damaged replies of five: once in four hundred
		}
	}
	if n := faults.Happened(); wrong > 4 || n[testenv.FlipDown] == 0 || n[testenv.ShortBody] == 0 {
		t.Errorf("%d wrong objects, %v", wrong, n)
	}

	s, network := badNetwork(t)
	if _, err := s.Put(t.Context(), "k", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	requests := 0
	network.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		requests++
		w.Header().Set("ETag", `"00112233445566778899aabbccddeeff"`)
		w.Write(data)
	})
	if got, _, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, data) || requests != 2 {
		t.Errorf("an ETag that is no MD5: %d bytes after %d requests, %v", len(got), requests, err)
	}
	requests = 0
	network.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		requests++
		w.Header().Set("ETag", `"00112233445566778899aabbccddeeff"`)
		w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
		w.Write(data)
	})
	if got, _, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, data) || requests != 1 {
		t.Errorf("an object under a key of KMS: %d bytes after %d requests, %v", len(got), requests, err)
	}
}

// TestS3GetOfADocumentThatIsReplaced breaks replies off while the object is replaced again and
// again. Get returns one of its states, and never that it has changed.
func TestS3GetOfADocumentThatIsReplaced(t *testing.T) {
	s, network := badNetwork(t)
	put := func(n int) {
		if _, err := s.Put(t.Context(), "k", bytes.Repeat([]byte{byte(n)}, 5000), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
	}
	put(0)
	for n := range 20 {
		broken := false
		network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
			if r.Method == http.MethodGet && !broken {
				broken = true
				w = &cutWriter{ResponseWriter: w, left: 2000, end: func() { put(n + 1); hangUp() }}
			}
			gateway.ServeHTTP(w, r)
		})
		got, _, err := s.Get(t.Context(), "k")
		if err != nil || !broken || !bytes.Equal(got, bytes.Repeat([]byte{byte(n + 1)}, 5000)) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// TestS3UploadsInPartsOverABadNetwork writes objects of several parts and reads them back.
func TestS3UploadsInPartsOverABadNetwork(t *testing.T) {
	store, faults := faultyStore(t, 3)
	faults.Space(2) // five faults in a row would end a request's attempts
	data := make([]byte, 17<<20)
	for i := range data {
		data[i] = byte(i * i >> 9)
	}
	faults.Inject(0.25, nil, testenv.SlowDown, testenv.ResetBefore, testenv.LostReply, testenv.FlipUp, testenv.ResetBody)
	for range 6 {
		w, err := store.Create(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		info, err := w.Finish()
		if err != nil || info.Size != int64(len(data)) {
			t.Fatal(info, err)
		}
		r, err := store.Open(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	t.Log(faults.Requests(), faults.Happened())
}
