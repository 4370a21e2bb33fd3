package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/zeebo/xxh3"
)

// Running describes the group of programs that runs for a lake.
type Running struct {
	// Command is what started it, PID its process id.
	Command string `json:"command"`
	PID     int    `json:"pid"`
	Lake    string `json:"lake"`
	// Temporal is the address of its Temporal.
	Temporal string `json:"temporal"`
	// Page is the URL of its web page. It is empty if the group has no server.
	Page string `json:"page,omitempty"`
}

// State is the folder on this machine that keeps what belongs to the group of one lake: the state
// of its Temporal, and which group runs. At most one group runs for a lake at a time.
type State struct {
	Dir string
	// Lake is the folder of the lake, "" for a lake in S3. A claim locks it too, so that no other
	// path of the folder and no other Dir leads to a second group. For a lake in S3, only groups of
	// this machine with the same Dir exclude each other.
	Lake string
}

// ErrElsewhere is the error for a lake that has a running group with its state elsewhere.
var ErrElsewhere = errors.New("another urlake up or add works on the folder of this lake, " +
	"by another path of it or with another --state")

// StateOf returns the state of a lake in a folder for all lakes; "" is DefaultStateRoot. It does
// not make the folder.
func StateOf(root, lakeURL string) (State, error) {
	if root == "" {
		var err error
		if root, err = DefaultStateRoot(); err != nil {
			return State{}, err
		}
	}
	s := State{Dir: filepath.Join(root, fmt.Sprintf("%016x", xxh3.HashString(lakeURL)))}
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		s.Lake = filepath.FromSlash(u.Path)
	}
	return s, nil
}

// DefaultStateRoot is the folder urlake in XDG_STATE_HOME, or else in ~/.local/state. It is not in
// the lake, which may be in S3, and is copied and shared without what one machine does with it.
func DefaultStateRoot() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // as the XDG specification says
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no folder for the state of Temporal: %w; use --state FOLDER", err)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "urlake"), nil
}

// Database is the file of Temporal's state.
func (s State) Database() string { return filepath.Join(s.Dir, "temporal.db") }

func (s State) lock() *flock.Flock { return flock.New(filepath.Join(s.Dir, "lock")) }
func (s State) record() string     { return filepath.Join(s.Dir, "running.json") }

// Claim is the right to run the group of a lake. It ends with Release or with the process.
type Claim struct {
	state State
	lock  *flock.Flock
	lake  *flock.Flock // nil for a lake in S3
}

// claimPause is the time between two attempts to get a claim.
const claimPause = 100 * time.Millisecond

// Claim waits until no group runs for the lake, and claims it. While another group runs, it calls
// onWait with it, time and again; an error of onWait ends the waiting and is returned.
func (s State) Claim(ctx context.Context, onWait func(Running) error) (*Claim, error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	lock := s.lock()
	// The first attempts may meet a Find, which holds the lock for a moment.
	for attempt := 0; ; attempt++ {
		free, err := lock.TryLock()
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", lock.Path(), err)
		}
		if free {
			// The record of a group that died.
			if err := os.Remove(s.record()); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, errors.Join(err, lock.Close())
			}
			lake, err := s.lockLake()
			if err != nil {
				return nil, errors.Join(err, lock.Close())
			}
			return &Claim{s, lock, lake}, nil
		}
		if attempt >= 3 {
			if r, ok := s.read(); ok {
				if err := onWait(r); err != nil {
					return nil, err
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(claimPause):
		}
	}
}

// lockLake locks the folder of the lake, and makes it if it is missing.
func (s State) lockLake() (*flock.Flock, error) {
	if s.Lake == "" {
		return nil, nil
	}
	if err := os.MkdirAll(s.Lake, 0o777); err != nil {
		return nil, err
	}
	lock := flock.New(s.Lake, flock.SetFlag(os.O_RDONLY))
	free, err := lock.TryLock()
	if err == nil && !free {
		err = ErrElsewhere
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lake %s: %w", s.Lake, err), lock.Close())
	}
	return lock, nil
}

// Announce lets Find find the group. PID is set to this process.
func (c *Claim) Announce(r Running) error {
	r.PID = os.Getpid()
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// Readers see all of it or nothing.
	temp := c.state.record() + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, c.state.record())
}

// Release ends the claim.
func (c *Claim) Release() error {
	err := os.Remove(c.state.record())
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if c.lake != nil {
		err = errors.Join(err, c.lake.Close())
	}
	return errors.Join(err, c.lock.Close())
}

func (s State) read() (Running, bool) {
	var r Running
	data, err := os.ReadFile(s.record())
	return r, err == nil && json.Unmarshal(data, &r) == nil
}

// Find returns the group that runs for the lake, if one does and has announced itself.
func (s State) Find() (Running, bool) {
	r, ok := s.read()
	if !ok {
		return Running{}, false
	}
	// If the lock is free, the group has died.
	lock := s.lock()
	free, err := lock.TryRLock()
	if err == nil && free {
		lock.Close()
		return Running{}, false
	}
	return r, err == nil
}
