package api

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/urlake/urlake/frontier"
)

//go:embed page.html
var pageSource string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{"count": groupDigits}).Parse(pageSource))

// pageTimeout bounds how long the page waits for other processes and for Redis.
const pageTimeout = 2 * time.Second

// page is what GET / shows.
type page struct {
	Notices   []string
	Processes []pageProcess // this one first
	Sum       statsAnswer
	Rates     []pageRate
	Span      time.Duration
	Ready     []pageReady
	Largest   []pageQueue
	// Commands and Errors are those of Redis, RedisTime the mean of the former.
	Commands, Errors int64
	RedisTime        time.Duration
}

type pageProcess struct {
	// Link is the page of the process, "" of this one.
	Name, Link string
	statsAnswer
	Err string
}

type pageRate struct {
	Name  string
	Total int64
	Rate  float64
}

type pageReady struct {
	Crawl       string
	Ready, Rest int64
}

type pageQueue struct {
	sizeAnswer
	// Link is what there is of the domain, URLs the list of what waits in the queue.
	Link, URLs string
}

// status shows people how the frontier is.
func (h *Handler) status(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	p := page{Processes: h.processes(ctx, r)}
	for _, one := range p.Processes {
		p.Sum.Shards += one.Shards
		p.Sum.Domains += one.Domains
		p.Sum.Waiting += one.Waiting
		p.Sum.Later += one.Later
		p.Sum.Leased += one.Leased
		p.Sum.Settled += one.Settled
		p.Sum.Visited += one.Visited
	}
	if missing := h.f.Shards() - p.Sum.Shards; missing > 0 {
		p.Notices = append(p.Notices, fmt.Sprintf("%d of %d shards are not served at the moment. Those of a process that died are taken by the others after --own.", missing, h.f.Shards()))
	}
	c := h.f.Counts()
	if c.Torn > 0 {
		p.Notices = append(p.Notices, fmt.Sprintf("The ends of %d journals were cut at the start: a process or machine had died while it wrote. The log says where.", c.Torn))
	}
	if p.Commands, p.Errors = c.Redis.Commands, c.Redis.Errors; p.Commands > 0 {
		p.RedisTime = (c.Redis.Time / time.Duration(c.Redis.Commands)).Round(time.Microsecond)
	}
	p.Rates, p.Span = h.rates.since(h.metrics)
	if h.f.RedisIsAway(ctx) {
		p.Notices = append(p.Notices, "Redis does not answer: nothing is handed out, and once that has lasted for --own nothing is taken any more.")
	}
	for _, q := range h.f.Ready() {
		p.Ready = append(p.Ready, pageReady{q.Crawl, q.Ready, q.All - q.Ready})
	}
	for _, q := range p.Processes[0].Largest {
		link := "/v1/domains/" + url.PathEscape(q.Domain)
		query := url.Values{"crawl": {q.Crawl}, "state": {frontier.StateWaiting}, "limit": {"1000"}}
		p.Largest = append(p.Largest, pageQueue{q, link, link + "/urls?" + query.Encode()})
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, &p); err != nil {
		h.failed(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'self'; base-uri 'none'")
	_, _ = w.Write(out.Bytes())
}

// processes asks all processes what they serve.
func (h *Handler) processes(ctx context.Context, r *http.Request) []pageProcess {
	others := h.f.Others()
	all := make([]pageProcess, 1+len(others))
	all[0] = pageProcess{Name: r.Host + " (this one)", statsAnswer: h.statsOf()}
	var asking sync.WaitGroup
	for i, name := range others {
		one := &all[i+1]
		one.Name, one.Link = base(name), base(name)+"/"
		asking.Go(func() {
			if err := h.statsAt(ctx, name, &one.statsAnswer); err != nil {
				one.Err = "does not answer"
			}
		})
	}
	asking.Wait()
	return all
}

// statsAt asks another process what it serves.
func (h *Handler) statsAt(ctx context.Context, name string, into *statsAnswer) error {
	ctx, done, err := h.toPeer(ctx, name)
	if err != nil {
		return err
	}
	defer done()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base(name)+"/v1/stats", nil)
	if err != nil {
		return err
	}
	req.Header.Set(forwarded, "1")
	res, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	return json.UnmarshalRead(res.Body, into)
}

const (
	// sampleEvery is the time between two samples of counters, rateSpan that over which rates are
	// shown.
	sampleEvery = 10 * time.Second
	rateSpan    = time.Minute
)

// rates remembers what the counters were, so that the page can show rates.
type rates struct {
	mu      sync.Mutex
	samples []sample // the oldest first
}

type sample struct {
	at     time.Time
	counts map[string]float64
}

// note takes a sample if the last one is old enough. Every request calls it.
func (r *rates) note(m *metrics) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if n := len(r.samples); n > 0 && now.Sub(r.samples[n-1].at) < sampleEvery {
		return
	}
	r.samples = append(r.samples, sample{now, m.counts()})
	for len(r.samples) > 1 && now.Sub(r.samples[1].at) >= rateSpan {
		r.samples = r.samples[1:]
	}
}

// since returns counts and their rates since the oldest sample, and how long ago that was.
func (r *rates) since(m *metrics) (all []pageRate, span time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := m.counts()
	for _, name := range lineResults {
		one := pageRate{Name: name, Total: int64(now[name])}
		if len(r.samples) > 0 {
			span = time.Since(r.samples[0].at)
			one.Rate = (now[name] - r.samples[0].counts[name]) / max(span.Seconds(), 1)
		}
		all = append(all, one)
	}
	return all, span.Round(time.Second)
}

// counts are the counters of lines and claims by what became of them.
func (m *metrics) counts() map[string]float64 {
	all := map[string]float64{}
	for _, name := range lineResults {
		var v dto.Metric
		if c, err := m.lines.GetMetricWith(prometheus.Labels{"result": name}); err == nil && c.Write(&v) == nil {
			all[name] = v.GetCounter().GetValue()
		}
	}
	return all
}

// groupDigits formats a number, with a narrow no-break space before every group of three digits.
func groupDigits(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "\u202f" + digits[i:]
	}
	return digits
}
