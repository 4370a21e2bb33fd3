package s3blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/urlake/urlake/internal/testenv"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/blob/s3blob"
)

// network is a network between a store and its gateway. If fault is set, it handles each request:
// it may forward it to the gateway, answer it or break the connection.
type network struct {
	mu    sync.Mutex
	fault func(w http.ResponseWriter, r *http.Request, gateway http.Handler)
}

func (n *network) set(fault func(w http.ResponseWriter, r *http.Request, gateway http.Handler)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fault = fault
}

// badNetwork opens a store behind a network without a fault yet.
func badNetwork(t *testing.T) (blob.Store, *network) {
	t.Helper()
	rawURL := testenv.S3(t)
	gatewayURL, err := url.Parse(testenv.NewS3Server(t).Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	// The signature covers the host name that the client uses.
	gateway := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", gatewayURL.Host, r.In.Host
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	n := &network{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.mu.Lock()
		fault := n.fault
		n.mu.Unlock()
		if fault == nil {
			gateway.ServeHTTP(w, r)
		} else {
			fault(w, r, gateway)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
	s := openS3Store(t, rawURL)
	s3blob.HurryRetries(s)
	return s, n
}

// hangUp breaks the connection of the request that a fault handles.
func hangUp() { panic(http.ErrAbortHandler) }

// cutWriter forwards left bytes of a body and then calls end.
type cutWriter struct {
	http.ResponseWriter
	left int
	end  func()
}

func (w *cutWriter) Write(p []byte) (int, error) {
	if len(p) <= w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	w.ResponseWriter.Write(p[:w.left])
	http.NewResponseController(w.ResponseWriter).Flush()
	w.end()
	return 0, errors.New("cut")
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestS3DownloadsResumeAfterBrokenConnections(t *testing.T) {
	s, network := badNetwork(t)
	data := make([]byte, 1<<20)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	if _, err := s.Put(t.Context(), "k", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		if requests.Add(1)%5 == 0 {
			hangUp()
		}
		gateway.ServeHTTP(&cutWriter{ResponseWriter: w, left: 200_000, end: hangUp}, r)
	})
	read := map[string]func() ([]byte, error){
		"ReadRange": func() ([]byte, error) { return s.ReadRange(t.Context(), "k", 0, int64(len(data))) },
		"Get": func() ([]byte, error) {
			b, _, err := s.Get(t.Context(), "k")
			return b, err
		},
		"Open": func() ([]byte, error) {
			r, err := s.Open(t.Context(), "k", 0, -1)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(r)
		},
	}
	for name, read := range read {
		requests.Store(0)
		got, err := read()
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if n := requests.Load(); n < 6 {
			t.Errorf("%s took %d requests: the network did not break", name, n)
		}
	}
}

func TestS3DownloadsEndWhenNothingComesThrough(t *testing.T) {
	s, network := badNetwork(t)
	if _, err := s.Put(t.Context(), "k", make([]byte, 100_000), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		gateway.ServeHTTP(&cutWriter{ResponseWriter: w, left: 0, end: hangUp}, r)
	})
	r, err := s.Open(t.Context(), "k", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if n, err := io.Copy(io.Discard, r); err == nil || n != 0 {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestS3DownloadsResumeAfterAStall(t *testing.T) {
	s, network := badNetwork(t)
	s3blob.SetStallTimeout(s, time.Second) // a slow machine is no stall
	data := bytes.Repeat([]byte("0123456789"), 10_000)
	if _, err := s.Put(t.Context(), "k", data, blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		if requests.Add(1) == 1 {
			w = &cutWriter{ResponseWriter: w, left: 40_000, end: func() { <-r.Context().Done() }}
		}
		gateway.ServeHTTP(w, r)
	})
	got, err := s.ReadRange(t.Context(), "k", 0, int64(len(data)))
	if err != nil || !bytes.Equal(got, data) || requests.Load() != 2 {
		t.Errorf("%d bytes in %d requests, %v", len(got), requests.Load(), err)
	}
}

func TestS3DownloadNeverMixesTwoObjects(t *testing.T) {
	s, network := badNetwork(t)
	if _, err := s.Put(t.Context(), "k", bytes.Repeat([]byte("a"), 1<<20), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		if r.Method == http.MethodGet {
			w = &cutWriter{ResponseWriter: w, left: 100_000, end: hangUp}
		}
		gateway.ServeHTTP(w, r)
	})
	for what, change := range map[string]struct {
		do   func() error
		want error
	}{
		"replaced": {func() error {
			_, err := s.Put(t.Context(), "k", bytes.Repeat([]byte("b"), 1<<20), blob.Condition{})
			return err
		}, blob.ErrChanged},
		"deleted": {func() error { return s.Delete(t.Context(), "k") }, blob.ErrNotExist},
	} {
		if _, err := s.Put(t.Context(), "k", bytes.Repeat([]byte("a"), 1<<20), blob.Condition{}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(t.Context(), "k", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		head := make([]byte, 1000)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Fatal(err)
		}
		if err := change.do(); err != nil {
			t.Fatal(err)
		}
		rest, err := io.ReadAll(r)
		if !errors.Is(err, change.want) {
			t.Errorf("an object that was %s: %v", what, err)
		}
		if i := bytes.IndexByte(rest, 'b'); i >= 0 {
			t.Errorf("an object that was %s: byte %d is the new object's", what, i)
		}
		r.Close()
	}
}

func TestS3RetriesWhatIsTransient(t *testing.T) {
	s, network := badNetwork(t)
	var requests atomic.Int64
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		switch requests.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.WriteHeader(http.StatusTooManyRequests)
		case 3:
			hangUp()
		default:
			gateway.ServeHTTP(w, r)
		}
	})
	if _, err := s.Put(t.Context(), "k", []byte("x"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n != 4 {
		t.Errorf("%d requests", n)
	}
}

func TestS3FinalErrors(t *testing.T) {
	s, network := badNetwork(t)
	answer := func(status int, code string) {
		network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status)
			if r.Method != http.MethodHead {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as told</Message></Error>", code)
			}
		})
	}
	put := func(cond blob.Condition) error {
		_, err := s.Put(t.Context(), "k", []byte("x"), cond)
		return err
	}
	get := func() error {
		_, _, err := s.Get(t.Context(), "k")
		return err
	}
	absent, match := blob.Condition{IfAbsent: true}, blob.Condition{IfMatch: "x"}
	for _, test := range []struct {
		status int
		code   string
		do     func() error
		want   error // nil: none of the Err variables of package blob
	}{
		{412, "PreconditionFailed", func() error { return put(absent) }, blob.ErrPrecondition},
		{412, "PreconditionFailed", func() error { return put(match) }, blob.ErrPrecondition},
		{409, "ConditionalRequestConflict", func() error { return put(absent) }, blob.ErrPrecondition},
		{409, "ConditionalRequestConflict", func() error { return put(match) }, blob.ErrPrecondition},
		{404, "NoSuchKey", func() error { return put(match) }, blob.ErrPrecondition},
		{404, "NoSuchBucket", func() error { return put(match) }, nil},
		{404, "NoSuchBucket", get, nil},
		{403, "AccessDenied", get, nil},
		{403, "AccessDenied", func() error { return put(absent) }, nil},
		{404, "NoSuchKey", get, blob.ErrNotExist},
	} {
		answer(test.status, test.code)
		err := test.do()
		if err == nil {
			t.Errorf("%d %s: no error", test.status, test.code)
			continue
		}
		for _, known := range []error{blob.ErrPrecondition, blob.ErrNotExist, blob.ErrInvalidKey, blob.ErrRange, blob.ErrChanged} {
			if errors.Is(err, known) != errors.Is(known, test.want) {
				t.Errorf("%d %s: %v", test.status, test.code, err)
			}
		}
		if test.want == nil && !strings.Contains(err.Error(), test.code) {
			t.Errorf("%d %s is not named in %q", test.status, test.code, err)
		}
	}
}

// TestS3TellsCredentialsFromPermissions covers Stat too, since replies to HEAD have no code.
func TestS3TellsCredentialsFromPermissions(t *testing.T) {
	s, network := badNetwork(t)
	for _, test := range []struct {
		status      int
		code        string
		credentials bool
	}{
		{400, "ExpiredToken", true}, {403, "InvalidAccessKeyId", true}, {403, "SignatureDoesNotMatch", true},
		{403, "RequestTimeTooSkewed", true}, {401, "Unauthorized", true},
		{403, "AccessDenied", false}, {403, "AllAccessDisabled", false},
	} {
		network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.WriteHeader(test.status)
			if r.Method != http.MethodHead {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as told</Message></Error>", test.code)
			}
		})
		_, _, get := s.Get(t.Context(), "k")
		_, stat := s.Stat(t.Context(), "k")
		for op, err := range map[string]error{"get": get, "stat": stat} {
			if !errors.Is(err, blob.ErrDenied) || errors.Is(err, blob.ErrCredentials) != test.credentials {
				t.Errorf("%s: %d %s: %v; want an ErrDenied, credentials %v", op, test.status, test.code, err, test.credentials)
			}
		}
	}
}

func TestS3ErrorsHoldNoCredentials(t *testing.T) {
	rawURL := testenv.S3(t)
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	good := testenv.NewS3Server(t)
	for what, env := range map[string][2]string{
		"a refused secret":           {"AWS_SECRET_ACCESS_KEY", "hush-hush"},
		"a password in the endpoint": {"AWS_ENDPOINT_URL_S3", "http://someone:hush-hush@127.0.0.1:1"},
	} {
		t.Setenv("AWS_SECRET_ACCESS_KEY", good.SecretKey)
		t.Setenv(env[0], env[1])
		s := openS3Store(t, rawURL)
		_, _, err := s.Get(t.Context(), "k")
		if err == nil {
			t.Errorf("%s: no error", what)
			continue
		}
		if text := fmt.Sprintf("%v %+v %s", err, err, s.URL()); strings.Contains(text, "hush") {
			t.Errorf("%s is shown: %s", what, text)
		}
	}
}

// The gateway completes an upload and the reply is lost. The retry finds no such upload, and Finish
// must recognise its object.
func TestS3FinishWhoseReplyIsLost(t *testing.T) {
	s, network := badNetwork(t)
	data := make([]byte, 9<<20)
	write := func() (blob.Info, error) {
		w, err := s.Create(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		defer w.Abort()
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		return w.Finish()
	}
	completes := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }
	noSuchUpload := func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "<Error><Code>NoSuchUpload</Code></Error>")
	}
	var tries atomic.Int64
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		switch {
		case !completes(r):
			gateway.ServeHTTP(w, r)
		case tries.Add(1) == 1:
			rec := httptest.NewRecorder()
			gateway.ServeHTTP(rec, r)
			if rec.Code != http.StatusOK {
				t.Errorf("complete: %d %s", rec.Code, rec.Body)
			}
			hangUp()
		default:
			noSuchUpload(w)
		}
	})
	info, err := write()
	if err != nil {
		t.Fatal(err)
	}
	if stat, err := s.Stat(t.Context(), "k"); err != nil || stat != info || tries.Load() != 2 {
		t.Errorf("Stat = %+v, %v, Finish had %+v after %d tries", stat, err, info, tries.Load())
	}

	// If the upload is lost, the old object is not taken for the new one.
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		if completes(r) {
			noSuchUpload(w)
			return
		}
		gateway.ServeHTTP(w, r)
	})
	if info, err := write(); err == nil {
		t.Errorf("Finish of a lost upload gave %+v", info)
	}
}

// The gateway's rejection of a conditional put never arrives.
func TestS3LostRejection(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	s, network := badNetwork(t)
	if _, err := s.Put(t.Context(), "k", []byte("old"), blob.Condition{}); err != nil {
		t.Fatal(err)
	}
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		if r.Method == http.MethodPut {
			hangUp()
		}
		gateway.ServeHTTP(w, r)
	})
	_, err := s.Put(t.Context(), "k", []byte("new"), blob.Condition{IfAbsent: true})
	if !errors.Is(err, blob.ErrPrecondition) {
		t.Errorf("IfAbsent beside an object: %v", err)
	}
	_, err = s.Put(t.Context(), "k", []byte("new"), blob.Condition{IfMatch: "other"})
	if !errors.Is(err, blob.ErrPrecondition) {
		t.Errorf("wrong IfMatch: %v", err)
	}
	_, err = s.Put(t.Context(), "free", []byte("new"), blob.Condition{IfAbsent: true})
	if err == nil || errors.Is(err, blob.ErrPrecondition) {
		t.Errorf("IfAbsent where nothing is: %v", err)
	}
}

func TestS3AbortRemovesTheUpload(t *testing.T) {
	s, network := badNetwork(t)
	var started, completed atomic.Int64
	var aborted sync.Map // by upload: an abort may be retried
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		switch q := r.URL.Query(); {
		case r.Method == http.MethodPost && q.Has("uploads"):
			started.Add(1)
		case r.Method == http.MethodPost && q.Has("uploadId"):
			completed.Add(1)
		case r.Method == http.MethodDelete && q.Has("uploadId"):
			aborted.Store(q.Get("uploadId"), true)
		case r.Method == http.MethodPut && q.Get("partNumber") == "2" && strings.HasSuffix(r.URL.Path, "/refused"):
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		gateway.ServeHTTP(w, r)
	})
	create := func(ctx context.Context, key string) blob.Writer {
		t.Helper()
		w, err := s.Create(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	data := make([]byte, 20<<20)

	w := create(t.Context(), "aborted")
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	w.Abort()

	ctx, cancel := context.WithCancel(t.Context())
	w = create(ctx, "cancelled")
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Finish(); !errors.Is(err, context.Canceled) {
		t.Errorf("Finish after the context ended: %v", err)
	}

	w = create(t.Context(), "refused")
	_, writeErr := w.Write(data)
	info, err := w.Finish()
	if err == nil || info != (blob.Info{}) {
		t.Errorf("Finish without a part: %+v, %v (Write said %v)", info, err, writeErr)
	}

	abortedUploads := 0
	aborted.Range(func(_, _ any) bool { abortedUploads++; return true })
	if started.Load() != 3 || abortedUploads != 3 || completed.Load() != 0 {
		t.Errorf("%d uploads started, %d aborted, %d completed", started.Load(), abortedUploads, completed.Load())
	}
	for info, err := range s.List(t.Context(), "") {
		t.Errorf("List: %v, %v", info, err)
	}
}

func TestS3SmallObjectsAreOnePut(t *testing.T) {
	s, network := badNetwork(t)
	var requests atomic.Int64
	network.set(func(w http.ResponseWriter, r *http.Request, gateway http.Handler) {
		requests.Add(1)
		gateway.ServeHTTP(w, r)
	})
	for _, size := range []int{0, 1000, s3blob.PartSize(1)} {
		requests.Store(0)
		w, err := s.Create(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if n := requests.Load(); n != 1 {
			t.Errorf("an object of %d bytes took %d requests", size, n)
		}
	}
}

// The test counts the parts in flight while the service waits until there are as many as the store
// allows.
func TestS3UploadsHoldFewPartsInMemory(t *testing.T) {
	s, network := badNetwork(t)
	var mu sync.Mutex
	inFlight, most, all, mostAll := map[string]int{}, 0, 0, 0
	full, release := make(chan struct{}, 1), make(chan struct{})
	network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		switch q := r.URL.Query(); {
		case q.Has("uploads"):
			io.WriteString(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		case q.Has("partNumber"):
			mu.Lock()
			inFlight[r.URL.Path]++
			all++
			most, mostAll = max(most, inFlight[r.URL.Path]), max(mostAll, all)
			if all == s3blob.StoreParts {
				select {
				case full <- struct{}{}:
				default:
				}
			}
			mu.Unlock()
			<-release
			mu.Lock()
			inFlight[r.URL.Path]--
			all--
			mu.Unlock()
			w.Header().Set("ETag", `"part"`)
		default:
			io.WriteString(w, "<CompleteMultipartUploadResult><ETag>&quot;all&quot;</ETag></CompleteMultipartUploadResult>")
		}
	})
	data := make([]byte, 4*s3blob.PartSize(1)+1)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			w, err := s.Create(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Abort()
			if _, err := w.Write(data); err != nil {
				t.Error(err)
			}
			if info, err := w.Finish(); err != nil || info.Size != int64(len(data)) || info.ETag != "all" {
				t.Errorf("Finish = %+v, %v", info, err)
			}
		})
	}
	<-full
	for range 300 {
		s.Stat(t.Context(), "time for one part too many to arrive")
	}
	close(release)
	wg.Wait()
	if most > s3blob.WriterParts || mostAll > s3blob.StoreParts {
		t.Errorf("up to %d parts of an object and %d in all in flight", most, mostAll)
	}
}

func TestS3PartsHoldTheLargestObject(t *testing.T) {
	var sum int64
	for n := int32(1); n <= s3blob.MaxParts; n++ {
		size := s3blob.PartSize(n)
		if size < 5<<20 || size > 5<<30 {
			t.Fatalf("part %d has %d bytes; S3 takes 5 MiB to 5 GiB", n, size)
		}
		sum += int64(size)
	}
	if sum < 5<<40 {
		t.Errorf("all parts together hold %d bytes; S3's largest object has 5 TiB", sum)
	}
	if a, b := s3blob.PartSize(1), s3blob.PartSize(900); a != 8<<20 || b != a {
		t.Errorf("parts 1 and 900 have %d and %d bytes", a, b)
	}
}

func TestS3DeleteReportsWhatIsLeft(t *testing.T) {
	s, network := badNetwork(t)
	network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, `<DeleteResult>
			<Error><Key>lake/a/locked</Key><Code>AccessDenied</Code><Message>locked</Message></Error>
			<Error><Key>lake/a/gone</Key><Code>NoSuchKey</Code></Error>
			</DeleteResult>`)
	})
	err := s.Delete(t.Context(), "a/locked", "a/gone", "a/fine")
	if err == nil || !strings.Contains(err.Error(), "a/locked") || !strings.Contains(err.Error(), "AccessDenied") ||
		strings.Contains(err.Error(), "gone") || strings.Contains(err.Error(), "fine") {
		t.Errorf("Delete: %v", err)
	}
	network.set(func(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
		io.Copy(io.Discard, r.Body)
		hangUp()
	})
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	if err := openS3Store(t, s.URL()).Delete(t.Context(), "a/b", "a/c"); err == nil {
		t.Error("Delete without an answer succeeded")
	}
}

func TestS3ListChecksNamesAndOrder(t *testing.T) {
	s, network := badNetwork(t)
	list := func(contents string) (keys []string, err error) {
		network.set(func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			io.WriteString(w, "<ListBucketResult>"+contents+"</ListBucketResult>")
		})
		for info, e := range s.List(t.Context(), "") {
			if e != nil {
				return keys, e
			}
			keys = append(keys, info.Key)
		}
		return keys, nil
	}
	object := func(key string, size int) string {
		return fmt.Sprintf("<Contents><Key>lake/%s</Key><Size>%d</Size><ETag>&quot;e&quot;</ETag></Contents>", key, size)
	}
	keys, err := list(object("", 0) + object(".tmp/locks/00", 7) + object("a", 1) + object("b/", 0) + object("b/c", 1))
	if err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"a", "b/c"}, keys); diff != "" {
		t.Errorf("folder markers (-want +got):\n%s", diff)
	}
	for _, bad := range []string{"b//c", "b/../c", "b/"} {
		if keys, err := list(object("a", 1) + object(bad, 1)); !errors.Is(err, blob.ErrInvalidKey) || len(keys) != 1 {
			t.Errorf("%q: %v, %v", bad, keys, err)
		}
	}
	// A caller that goes on after such a key gets the others. The service says whether keys are
	// encoded.
	for _, encoding := range []string{"", "<EncodingType>url</EncodingType>"} {
		var got []string
		encoded := func(key string, size int) string { return object(url.QueryEscape(key), size) }
		if encoding == "" {
			encoded = object
		}
		network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			if r.URL.Query().Get("encoding-type") != "url" {
				t.Errorf("asked for %s", r.URL.RawQuery)
			}
			io.WriteString(w, "<ListBucketResult>"+encoding+encoded("a b+c%20", 1)+encoded("b//c", 1)+encoded("d/ü", 1))
			if encoding != "" {
				io.WriteString(w, encoded("e\x01\n", 1))
			}
			io.WriteString(w, encoded("f", 1)+"</ListBucketResult>")
		})
		want := []string{"a b+c%20", "!b//c", "d/ü", "!e\x01\n", "f"}
		if encoding == "" {
			want = slices.Delete(want, 3, 4)
		}
		for info, err := range s.List(t.Context(), "") {
			if errors.Is(err, blob.ErrInvalidKey) && info.Key != "" {
				got = append(got, "!"+info.Key)
			} else if err != nil {
				t.Fatal(err)
			} else {
				got = append(got, info.Key)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", encoding, diff)
		}
	}
	for _, order := range [][2]string{{"b", "a"}, {"a", "a"}, {"a/b", "a.b"}} {
		if keys, err := list(object(order[0], 1) + object(order[1], 1)); err == nil {
			t.Errorf("listed out of order: %v", keys)
		}
	}
}

// The gateway sends fewer bytes than requested, or another range.
func TestS3ShortReplies(t *testing.T) {
	s, network := badNetwork(t)
	for what, contentRange := range map[string]string{
		"shorter": "bytes 10-14/15",
		"other":   "bytes 0-9/100",
		"without": "",
		"garbage": "bytes x-y/z",
	} {
		network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			w.Header().Set("ETag", `"e"`)
			if contentRange != "" {
				w.Header().Set("Content-Range", contentRange)
				w.WriteHeader(http.StatusPartialContent)
			}
			io.WriteString(w, "0123456789")
		})
		if b, err := s.ReadRange(t.Context(), "k", 10, 10); err == nil {
			t.Errorf("%s: %q", what, b)
		}
	}
	network.set(func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		w.Header().Set("ETag", `"e"`)
		http.NewResponseController(w).Flush()
		io.WriteString(w, "0123456789")
	})
	if b, _, err := s.Get(t.Context(), "k"); err == nil {
		t.Errorf("without a length: %q", b)
	}
}
