package frontier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urlake/urlake/frontier/coord"
	"github.com/urlake/urlake/frontier/robots"
	"github.com/urlake/urlake/lake/urlnorm"
)

const (
	// robotsListed bounds the files that DomainState has.
	robotsListed = 100
	// robotsDelays bounds how many delays of robots.txt files are kept of a key. Each holds longer
	// than those before, so more are rare.
	robotsDelays = 16
	// robotsForgotten bounds how many files a tick looks at.
	robotsForgotten = 500
	// robotsHolds is how long a file holds that does not say: RFC 9309, section 2.4.
	robotsHolds = robots.MaxAge
)

// RobotsFile is the robots.txt of a host, which holds for both http and https.
type RobotsFile struct {
	// Host is the host, with its port if that is not the default.
	Host string
	// Text has up to robots.MaxText bytes.
	Text []byte
	// Expires is until when it holds.
	Expires time.Time
	// Delay is the Crawl-delay that it asks for, within Options.MaxRobotsDelay, 0 for none.
	Delay time.Duration
}

// robotsName is the file of a shard that has its robots.txt files.
const robotsName = "robots"

func (s *owned) openRobots(dir string, o Options) error {
	store, damaged, err := openRobotsStore(filepath.Join(dir, robotsName), o.Shard.Sync)
	if err != nil {
		return err
	}
	if damaged != nil {
		o.Log.Warn("the robots.txt files of a shard are damaged, and are fetched again", "error", damaged)
	}
	s.robots = store
	return nil
}

// robotsHost returns the canonical form of a host that may have a port.
func (f *Frontier) robotsHost(host string) (string, error) {
	u, err := urlnorm.Parse(f.list, "http://"+host+"/")
	if err != nil || u.PathQuery != "/" || strings.ContainsAny(host, "/?#@\\") {
		return "", fmt.Errorf("%w: %q is no host with or without a port", ErrURL, host)
	}
	if u.Port < 0 || u.Port == 443 {
		return u.Host, nil
	}
	return fmt.Sprintf("%s:%d", u.Host, u.Port), nil
}

// SetRobots keeps the robots.txt of a host of a key. Its Crawl-delay holds for the key until the
// file expires, if it is longer than the delay that holds otherwise. Without a time it holds for a
// day; one that is over removes the file. The error is ErrURL for what is no host.
func (f *Frontier) SetRobots(ctx context.Context, key string, r RobotsFile) error {
	host, err := f.robotsHost(cmp.Or(r.Host, key))
	if err != nil {
		return err
	}
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return err
	}
	defer release()
	now := f.now()
	file := robotsEntry{Host: host, Text: r.Text, Expires: now + robotsHolds.Milliseconds(), Delay: robots.Parse(string(r.Text), f.o.RobotsAgent).Delay}
	if !r.Expires.IsZero() {
		file.Expires = r.Expires.UnixMilli()
	}
	return f.setRobots(context.WithoutCancel(ctx), s, key, file, now)
}

func (f *Frontier) setRobots(ctx context.Context, s *owned, key string, file robotsEntry, now int64) error {
	s.robotsChanging.Lock()
	defer s.robotsChanging.Unlock()
	before, _, err := s.robots.Head(key, file.Host, now)
	if err != nil {
		return err
	}
	// The delay is in Redis before the file is there: who finds the file relies on the delay.
	if file.Delay > 0 || before.Delay > 0 {
		others, err := s.otherDelays(key, file, before, now)
		if err != nil {
			return err
		}
		delays := f.robotsDelays(append(others, file), now)
		if err := f.changeDomain(ctx, s, key, coord.Change{Robots: &delays}); err != nil {
			return err
		}
	}
	return s.robots.Put(key, file)
}

// otherDelays returns files with all the delays that a key has without one that is replaced. As
// long as the new one asks for as much as that, what Redis has is enough: a key may have very many
// hosts.
func (s *owned) otherDelays(key string, file, before robotsEntry, now int64) (all []robotsEntry, err error) {
	if before.Delay <= file.Delay && before.Expires <= file.Expires {
		for _, r := range s.coord.Settings(key).Robots {
			all = append(all, robotsEntry{Delay: r.Delay, Expires: r.Until})
		}
		return all, nil
	}
	err = s.robots.Files(key, now, func(other robotsEntry) bool {
		if other.Host != file.Host && other.Delay > 0 {
			all = append(all, other)
		}
		return true
	})
	return all, err
}

// robotsDelays returns the delays that files ask for, without those that hold no longer than a
// longer one.
func (f *Frontier) robotsDelays(files []robotsEntry, now int64) []coord.RobotsDelay {
	slices.SortFunc(files, func(a, b robotsEntry) int {
		return cmp.Or(cmp.Compare(b.Delay, a.Delay), cmp.Compare(b.Expires, a.Expires))
	})
	var all []coord.RobotsDelay
	last := now
	for _, r := range files {
		if d := min(r.Delay, f.o.MaxRobotsDelay); d > 0 && r.Expires > last {
			last = r.Expires
			if n := len(all); n == robotsDelays || n > 0 && all[n-1].Delay == d {
				all[n-1].Until = last
			} else {
				all = append(all, coord.RobotsDelay{Delay: d, Until: last})
			}
		}
	}
	return all
}

// Robots returns the robots.txt of a host of a key. It is false if the frontier has none that
// holds. The error is ErrURL for what is no host.
func (f *Frontier) Robots(key, host string) (r RobotsFile, ok bool, err error) {
	host, err = f.robotsHost(cmp.Or(host, key))
	if err != nil {
		return r, false, err
	}
	s, release, err := f.use(f.shardOf(key))
	if err != nil {
		return r, false, err
	}
	defer release()
	file, ok, err := s.robots.Get(key, host, f.now())
	if errors.Is(err, errDamaged) {
		f.o.Log.Warn(err.Error())
		return r, false, nil // the client fetches it again
	}
	return f.robotsFile(file), ok, err
}

func (f *Frontier) robotsFile(r robotsEntry) RobotsFile {
	return RobotsFile{r.Host, r.Text, time.UnixMilli(r.Expires).UTC(), min(r.Delay, f.o.MaxRobotsDelay)}
}

// robotsOf returns some of the files of a key.
func (f *Frontier) robotsOf(s *owned, key string, now int64) (all []RobotsFile, err error) {
	err = s.robots.Files(key, now, func(r robotsEntry) bool {
		all = append(all, f.robotsFile(r))
		return len(all) < robotsListed
	})
	return all, err
}

// noteRobots sets until when the frontier has the robots.txt of the hosts of claims of a shard.
func (f *Frontier) noteRobots(number int, claims []Claim) error {
	if len(claims) == 0 {
		return nil
	}
	s, release, err := f.use(number)
	if errors.Is(err, ErrElsewhere) {
		return nil
	}
	if err != nil {
		return err
	}
	defer release()
	if s.robots.Empty() {
		return nil
	}
	hosts := make([][2]string, len(claims))
	for i := range claims {
		hosts[i] = [2]string{claims[i].Key, authority(claims[i].URL)}
	}
	until, err := s.robots.Expiries(f.now(), hosts)
	for i, ms := range until {
		if ms > 0 {
			claims[i].Robots = time.UnixMilli(ms).UTC()
		}
	}
	return err
}

// authority returns the host of a canonical URL, with its port if that is not the default.
func authority(url string) string {
	_, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	return host
}

// forgetRobots removes some of the files that do not hold any more.
func (s *owned) forgetRobots(now int64) (err error) {
	s.domains.robots, err = s.robots.Forget(now, s.domains.robots, robotsForgotten)
	return err
}
