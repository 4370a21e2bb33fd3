package testenv

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
)

// S3Fault is a kind of thing that goes wrong between a client and an S3 server.
type S3Fault int

const (
	// ServerError and SlowDown are replies with the status 500 and 503; nothing was done.
	ServerError S3Fault = iota
	SlowDown
	// Hang is no reply until the client gives up; nothing was done.
	Hang
	// ResetBefore breaks the connection before the request has reached the server, after half of
	// its body.
	ResetBefore
	// LostReply breaks the connection after the server has done what it was asked for.
	LostReply
	// ResetBody breaks the connection after half of the body of the reply.
	ResetBody
	// ShortBody leaves out the second half of an object, with a Content-Length that agrees.
	ShortBody
	// FlipDown and FlipUp flip a bit of an object in a reply and in a request.
	FlipDown
	FlipUp

	s3Faults
)

// S3FaultKinds are all kinds.
func S3FaultKinds() (all []S3Fault) {
	for k := range s3Faults {
		all = append(all, k)
	}
	return all
}

func (k S3Fault) String() string {
	return [...]string{
		"500", "503", "hang", "reset before", "lost reply", "reset in body", "short body", "flip down",
		"flip up",
	}[k]
}

// S3Faults is a proxy before an S3 server that lets requests fail at random. It begins without
// faults.
type S3Faults struct {
	// Endpoint is the URL of the proxy.
	Endpoint string

	server *S3Server
	host   string // of the server
	stop   <-chan struct{}

	mu       sync.Mutex
	random   *rand.Rand
	rate     float64
	kinds    []S3Fault
	only     func(*http.Request) bool
	apart    int // the fewest requests from one fault to the next
	requests int
	last     int // the last request that failed
	happened map[S3Fault]int
}

// NewS3Faults starts a proxy before a server that stops with the test. Seed is that of its choices.
func NewS3Faults(tb testing.TB, server *S3Server, seed uint64) *S3Faults {
	tb.Helper()
	u, err := url.Parse(server.Endpoint)
	if err != nil {
		tb.Fatal(err)
	}
	f := &S3Faults{
		server: server, host: u.Host, random: rand.New(rand.NewPCG(seed, 1)), happened: map[S3Fault]int{},
	}
	stopped := make(chan struct{})
	f.stop = stopped
	proxy := httptest.NewServer(f)
	tb.Cleanup(func() {
		close(stopped)
		proxy.CloseClientConnections()
		proxy.Close()
	})
	f.Endpoint = proxy.URL
	return f
}

// Env is S3Server.Env with the endpoint of the proxy.
func (f *S3Faults) Env() []string {
	return append(f.server.Env(), "AWS_ENDPOINT_URL_S3="+f.Endpoint)
}

// Inject lets that share of requests fail, from 0 to 1, each by one of the kinds that can happen to
// it. Only, if it is not nil, selects requests.
func (f *S3Faults) Inject(rate float64, only func(*http.Request) bool, kinds ...S3Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rate, f.only, f.kinds = rate, only, kinds
}

// Space keeps faults at least so many requests apart.
func (f *S3Faults) Space(apart int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.apart = apart
}

// Heal ends all faults.
func (f *S3Faults) Heal() { f.Inject(0, nil) }

// Requests is how many requests have come to the proxy.
func (f *S3Faults) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// Happened is how often each kind has happened.
func (f *S3Faults) Happened() map[S3Fault]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := map[S3Fault]int{}
	for k, n := range f.happened {
		all[k] = n
	}
	return all
}

// can reports whether a kind of fault can happen to a request.
func (k S3Fault) can(r *http.Request, body []byte) bool {
	object := r.Method == http.MethodGet && !isS3List(r)
	switch k {
	case ShortBody, FlipDown:
		return object
	case ResetBody:
		return r.Method == http.MethodGet
	case FlipUp:
		return r.Method == http.MethodPut && len(body) > 0
	}
	return true
}

// isS3List reports whether a request lists objects.
func isS3List(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Query().Has("list-type")
}

// choose returns what happens to a request, ok is false for nothing, and a random number for it.
func (f *S3Faults) choose(r *http.Request, body []byte) (k S3Fault, n int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if f.requests-f.last < f.apart || f.rate == 0 || f.random.Float64() >= f.rate || f.only != nil && !f.only(r) {
		return 0, 0, false
	}
	var may []S3Fault
	for _, k := range f.kinds {
		if k.can(r, body) {
			may = append(may, k)
		}
	}
	if len(may) == 0 {
		return 0, 0, false
	}
	f.last = f.requests
	return may[f.random.IntN(len(may))], f.random.IntN(1 << 30), true
}

func (f *S3Faults) note(k S3Fault) {
	f.mu.Lock()
	f.happened[k]++
	f.mu.Unlock()
}

// ServeHTTP implements http.Handler.
func (f *S3Faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	kind, n, fails := f.choose(r, body)
	if fails {
		switch kind {
		case ServerError, SlowDown:
			f.note(kind)
			status, code := http.StatusInternalServerError, "InternalError"
			if kind == SlowDown {
				status, code = http.StatusServiceUnavailable, "SlowDown"
			}
			w.WriteHeader(status)
			if r.Method != http.MethodHead {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>injected</Message></Error>", code)
			}
			return
		case Hang:
			f.note(kind)
			select {
			case <-r.Context().Done():
			case <-f.stop:
			}
			panic(http.ErrAbortHandler)
		case ResetBefore:
			f.note(kind)
			panic(http.ErrAbortHandler)
		case FlipUp:
			f.note(kind)
			body = bytes.Clone(body)
			body[n%len(body)] ^= 1 << (n % 8)
		}
	}
	status, header, data, err := f.forward(r, body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	whole, good := len(data), status/100 == 2
	if fails && good {
		switch {
		case kind == LostReply:
			f.note(kind)
			panic(http.ErrAbortHandler)
		case kind == ResetBody:
			f.note(kind)
			data = data[:len(data)/2]
		case kind == ShortBody && len(data) > 0:
			f.note(kind)
			data = data[:len(data)/2]
			whole = len(data)
		case kind == FlipDown && len(data) > 0:
			f.note(kind)
			data = bytes.Clone(data)
			data[n%len(data)] ^= 1 << (n % 8)
		}
	}
	for name, values := range header {
		w.Header()[name] = values
	}
	if r.Method != http.MethodHead {
		w.Header().Set("Content-Length", strconv.Itoa(whole))
	}
	w.WriteHeader(status)
	_, _ = w.Write(data)
	if len(data) < whole {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// forward sends a request on to the server and reads the whole reply.
func (f *S3Faults) forward(r *http.Request, body []byte) (status int, header http.Header, data []byte, err error) {
	out := r.Clone(r.Context())
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = "http", f.host
	out.Host = r.Host // the signature covers the host name that the client uses
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	for _, name := range []string{"Connection", "Expect", "Keep-Alive", "Te", "Upgrade"} {
		out.Header.Del(name)
	}
	reply, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return 0, nil, nil, err
	}
	defer reply.Body.Close()
	data, err = io.ReadAll(reply.Body)
	return reply.StatusCode, reply.Header, data, err
}
