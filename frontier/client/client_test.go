package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// scripted answers request n with the n-th of its answers; the last one serves all that follow.
func scripted(t *testing.T, answers ...func(w http.ResponseWriter, lines []string)) (*Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		lines := strings.Split(strings.TrimSpace(string(body)), "\n")
		answers[min(int(n.Add(1)), len(answers))-1](w, lines)
	}))
	t.Cleanup(s.Close)
	c, err := New(s.URL+"/", Options{Patience: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return c, &n
}

func added(w http.ResponseWriter, lines []string) {
	for range lines {
		fmt.Fprintln(w, `{"result":"added"}`)
	}
}

func busy(w http.ResponseWriter, _ []string) {
	w.Header().Set("Retry-After", "0")
	w.WriteHeader(http.StatusServiceUnavailable)
	fmt.Fprintln(w, `{"detail":"no process serves this"}`)
}

func cut(w http.ResponseWriter, lines []string) {
	fmt.Fprintln(w, `{"result":"known"}`)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Lines that were not answered, or that nobody serves, are sent again, and only those.
func TestAddGoesOn(t *testing.T) {
	var sent []string
	note := func(f func(http.ResponseWriter, []string)) func(http.ResponseWriter, []string) {
		return func(w http.ResponseWriter, lines []string) {
			sent = append(sent, fmt.Sprint(len(lines)))
			f(w, lines)
		}
	}
	c, _ := scripted(t, note(busy), note(cut), note(func(w http.ResponseWriter, lines []string) {
		for i := range lines {
			fmt.Fprintln(w, []string{`{"result":"elsewhere","reason":"send again"}`, `{"result":"rejected","reason":"host"}`}[i%2])
		}
	}), note(added))
	var urls []URL
	for i := range 6 {
		urls = append(urls, URL{URL: fmt.Sprintf("https://a.test/%d", i)})
	}
	got, err := c.Add(t.Context(), urls)
	if err != nil {
		t.Fatal(err)
	}
	want := []Result{{Known, ""}, {Added, ""}, {Rejected, "host"}, {Added, ""}, {Rejected, "host"}, {Added, ""}}
	if fmt.Sprint(got) != fmt.Sprint(want) || strings.Join(sent, " ") != "6 6 5 3" {
		t.Errorf("%v after requests of %v lines, want %v", got, sent, want)
	}
}

func TestWhatIsRefusedIsNotSentAgain(t *testing.T) {
	c, n := scripted(t, func(w http.ResponseWriter, _ []string) {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintln(w, `{"title":"Bad Request","detail":"the cursor is none of this frontier's"}`)
	})
	_, err := c.Visited(t.Context(), time.Time{}, "x", 10)
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Status != 400 || !strings.Contains(err.Error(), "the cursor is none") || n.Load() != 1 {
		t.Errorf("%v after %d requests", err, n.Load())
	}
	if strings.Contains(err.Error(), "limit=") {
		t.Errorf("the error has the query: %v", err)
	}
}

// refusing fails every request.
type refusing struct{ n int }

func (r *refusing) RoundTrip(*http.Request) (*http.Response, error) {
	r.n++
	return nil, errors.New("connection refused")
}

// A frontier that is away is asked until the patience ends.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &refusing{}
		c, err := New("http://frontier:7070", Options{Patience: time.Minute, HTTP: &http.Client{Transport: r}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = c.Add(t.Context(), []URL{{URL: "https://a.test/"}})
		if took := time.Since(began); err == nil || !strings.Contains(err.Error(), "connection refused") || took > time.Minute || took < 50*time.Second || r.n < 20 {
			t.Errorf("%v after %s and %d requests", err, took, r.n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Stats(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// A page counts when its last line has come.
func TestVisited(t *testing.T) {
	page := func(n int, end string) func(http.ResponseWriter, []string) {
		return func(w http.ResponseWriter, _ []string) {
			for i := range n {
				fmt.Fprintf(w, `{"url":"https://a.test/%d"}`+"\n", i)
			}
			fmt.Fprint(w, end)
		}
	}
	c, n := scripted(t, page(1, ""), page(2, `{"next_cursor":"AA"}`+"\n"))
	p, err := c.Visited(t.Context(), time.Time{}, "", 10)
	if err != nil || p.Visits != 2 || p.Next != "AA" || n.Load() != 2 || string(p.Lines) != `{"url":"https://a.test/0"}`+"\n"+`{"url":"https://a.test/1"}`+"\n" {
		t.Errorf("%+v, %v after %d requests", p, err, n.Load())
	}
	defer func(before int) { maxPage = before }(maxPage)
	maxPage = 100
	c, n = scripted(t, page(50, `{"next_cursor":"AA"}`+"\n"), page(3, `{"next_cursor":"AB"}`+"\n"))
	if p, err := c.Visited(t.Context(), time.Time{}, "", 50); err != nil || p.Visits != 3 || n.Load() != 2 {
		t.Errorf("a page that is too large: %d visits, %v after %d requests", p.Visits, err, n.Load())
	}
}

// A list without an end is asked for again, and a cursor that is empty is the end of all.
func TestList(t *testing.T) {
	var asked []string
	answers := []string{`{"url":"https://a.test/0","state":"waiting","priority":3,"depth":4}` + "\n", `{"next_cursor":"AA"}`, `{"next_cursor":""}`}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Query().Get("crawl")+" "+r.URL.Query().Get("cursor"))
		fmt.Fprint(w, strings.Join(answers[:min(len(asked), 2)], "")+"\n")
		if len(asked) > 1 {
			answers[1] = answers[2]
		}
	}))
	defer s.Close()
	c, err := New(s.URL, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"AA", ""} {
		urls, next, err := c.List(t.Context(), "c", "x", 10)
		if err != nil || next != want || len(urls) != 1 || urls[0] != (ListedURL{"https://a.test/0", "waiting", 3, 4}) {
			t.Errorf("%+v, %q, %v, want the cursor %q", urls, next, err, want)
		}
	}
	if !slices.Equal(asked, []string{"c x", "c x", "c x"}) {
		t.Errorf("%q", asked)
	}
}

func TestCheckURL(t *testing.T) {
	for url, ok := range map[string]bool{
		"http://127.0.0.1:7070": true, "https://frontier/": true, "http://[::1]:7070": true,
		"127.0.0.1:7070": false, "redis://a": false, "http://": false, "http://u:p@a": false, "http://a?x": false, "": false,
	} {
		if err := CheckURL(url); (err == nil) != ok || err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Results come in the order of the work, however long each takes.
func TestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []int
		var running, most atomic.Int64
		err := InOrder(t.Context(), 3, func(_ context.Context, hand func(func(context.Context) (int, error)) error) error {
			for i := range 20 {
				if err := hand(func(context.Context) (int, error) {
					most.Store(max(most.Load(), running.Add(1)))
					time.Sleep(time.Duration(20-i%7) * time.Second)
					running.Add(-1)
					return i, nil
				}); err != nil {
					return err
				}
			}
			return nil
		}, func(i int) error {
			got = append(got, i)
			return nil
		})
		if err != nil || len(got) != 20 || most.Load() > 4 || most.Load() < 2 {
			t.Errorf("%v, %v, %d at once", got, err, most.Load())
		}
		for i, n := range got {
			if i != n {
				t.Fatalf("order %v", got)
			}
		}
		failed := errors.New("no")
		err = InOrder(t.Context(), 3, func(ctx context.Context, hand func(func(context.Context) (int, error)) error) error {
			for {
				if err := hand(func(context.Context) (int, error) { return 0, failed }); err != nil {
					return err
				}
			}
		}, func(int) error { return nil })
		if !errors.Is(err, failed) {
			t.Errorf("%v", err)
		}
	})
}
