// Package retire takes batches out of a lake, and brings them back: what "starter retire" and
// "starter restore" leave to the next publish (package catalog), and what they print. That publish
// is the caller's.
package retire

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/indexbuild/postings"
	"github.com/urlake/urlake/indexbuild/segment"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/publish"
	"github.com/urlake/urlake/publish/lakecheck"
	"github.com/urlake/urlake/starter/find"
)

// reads is how many batch records are read concurrently.
const reads = 16

// Options select batches.
type Options struct {
	Dataset string
	// Batches are names; none stands for all batches of the dataset.
	Batches []string
	// Restore brings retired batches back instead of retiring them.
	Restore bool
	// DryRun changes nothing. NoPublish asks for no publish, Wait waits for it. Deadline is how
	// long it may take, as in ingest.Spec. They are the caller's.
	DryRun, NoPublish, Wait bool
	Deadline                string
}

// Batch is a selected batch.
type Batch struct {
	Batch string `json:"batch"`
	// Digest names its record.
	Digest string `json:"digest"`
	// Rows, and the Bytes of their Parquet, are 0 if the record is damaged, and no version has the
	// batch.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// Published tells that the current version has the batch, from this ingest or an earlier one.
	Published bool `json:"published"`
	// Already tells that the batch was retired before.
	Already bool `json:"already,omitempty"`

	start int64 // of the ingest, or of what retired it
}

// Selection are batches of one dataset, and what is done about them. It is what --json prints.
type Selection struct {
	Dataset   string  `json:"dataset"`
	DatasetID uint32  `json:"dataset_id"`
	Batches   []Batch `json:"batches"`
	// Rows and Bytes are the sums of those batches that are not retired already.
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
	// DryRun tells that nothing was changed.
	DryRun bool `json:"dry_run,omitempty"`
	// Version is the version that follows the change, "" if the command did not wait for it.
	Version string `json:"version,omitempty"`
	// Workflow is the publisher that was asked.
	Workflow string `json:"workflow_id,omitempty"`

	restore bool
}

// Select finds the batches that the options name. It changes nothing.
func (o *Options) Select(ctx context.Context, store blob.Store) (*Selection, error) {
	d, err := find.Dataset(ctx, store, o.Dataset)
	if err != nil {
		return nil, err
	}
	state, err := catalog.LookBatches(ctx, store, d.ID)
	if err != nil {
		return nil, err
	}
	states, err := state.Batches(ctx, d.ID)
	if err != nil {
		return nil, err
	}
	s := &Selection{Dataset: d.Name, DatasetID: d.ID, Batches: []Batch{}, DryRun: o.DryRun, restore: o.Restore}
	for _, name := range o.Batches {
		at := slices.IndexFunc(states, func(b catalog.PendingBatch) bool { return b.Batch == name })
		if at < 0 {
			return nil, unknownBatch(d.Name, name, states)
		}
		if o.Restore && !states[at].Retired {
			return nil, fmt.Errorf("batch %s of %s is not retired", name, d.Name)
		}
	}
	for _, state := range states {
		if len(o.Batches) > 0 && !slices.Contains(o.Batches, state.Batch) || o.Restore && !state.Retired {
			continue
		}
		s.Batches = append(s.Batches, Batch{
			Batch: state.Batch, Digest: state.Digest, Already: !o.Restore && state.Retired, start: state.Start,
		})
	}
	switch {
	case len(s.Batches) == 0 && o.Restore:
		return nil, fmt.Errorf("no batch of %s is retired", d.Name)
	case len(s.Batches) == 0:
		return nil, fmt.Errorf("dataset %s has no finished batch", d.Name)
	}
	if err := s.measure(ctx, store); err != nil {
		return nil, err
	}
	for i := range s.Batches {
		if b := &s.Batches[i]; !b.Already {
			s.Rows += b.Rows
			s.Bytes += b.Bytes
		}
	}
	return s, nil
}

// unknownBatch is the error for a name that no finished batch has.
func unknownBatch(dataset, name string, states []catalog.PendingBatch) error {
	names := make([]string, len(states))
	for i := range states {
		names[i] = states[i].Batch
	}
	if meant, ok := cli.Nearest(name, names); ok {
		return fmt.Errorf("dataset %s has no finished batch %q; did you mean %q?", dataset, name, meant)
	}
	return fmt.Errorf("dataset %s has no finished batch %q", dataset, name)
}

// measure finds rows and bytes of the batches: those of the version, or of their records. A batch
// that is to be restored must be intact, with its record: a union may still have the rows of a
// batch whose record was collected, but a version without the record of a batch is damaged.
func (s *Selection) measure(ctx context.Context, store blob.Store) error {
	live, err := s.live(ctx, store)
	if err != nil {
		return err
	}
	lost := make([]error, len(s.Batches))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for i := range s.Batches {
		b := &s.Batches[i]
		have, ok := live[s.name(b)]
		if b.Published = ok; ok && !s.restore {
			b.Rows, b.Bytes = have.Rows, have.Bytes
			continue
		}
		g.Go(func() error {
			ref := segment.BatchRef{DatasetID: s.DatasetID, Batch: b.Batch, Digest: b.Digest}
			_, record, err := lakecheck.Source(ctx, store, ref)
			var d *postings.DamageError
			damaged := errors.As(err, &d)
			if err != nil && !damaged {
				return err
			}
			_, statErr := store.Stat(ctx, ref.Key())
			switch {
			case errors.Is(statErr, blob.ErrNotExist):
				lost[i] = fmt.Errorf("batch %s of %s was deleted by a garbage collection, or lost; ingest it again",
					b.Batch, s.Dataset)
				return nil
			case damaged:
				lost[i] = fmt.Errorf("batch %s of %s: %s", b.Batch, s.Dataset, lakecheck.Reason(ctx, store, ref, err))
				return nil
			case statErr != nil:
				return statErr
			}
			b.Rows, b.Bytes = record.Rows, 0
			for _, p := range record.Parts {
				b.Bytes += p.Bytes
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil || !s.restore {
		return err
	}
	if err := cmp.Or(lost...); err != nil {
		left := ""
		for i, b := range s.Batches {
			if lost[i] == nil {
				left += " --batch " + b.Batch
			}
		}
		if left != "" {
			left = "; what can be restored:" + left
		}
		return fmt.Errorf("nothing is restored, since not all of it is left: %w%s", err, left)
	}
	return nil
}

func (s *Selection) name(b *Batch) catalog.BatchName {
	return catalog.BatchName{DatasetID: s.DatasetID, Batch: b.Batch}
}

// live returns those of the batches that the current version has.
func (s *Selection) live(ctx context.Context, store blob.Store) (map[catalog.BatchName]catalog.Batch, error) {
	state, err := catalog.Look(ctx, store)
	if err != nil {
		return nil, err
	}
	names := make([]catalog.BatchName, len(s.Batches))
	for i := range s.Batches {
		names[i] = s.name(&s.Batches[i])
	}
	return state.Current.FindBatches(ctx, names)
}

// Apply leaves the retirement, or the return, of the batches to the next publish, which makes a
// version of it. That is durable when Apply returns.
func (s *Selection) Apply(ctx context.Context, store blob.Store) error {
	if err := catalog.CheckFormats(ctx, store); err != nil {
		return err
	}
	start := time.Now().UnixNano()
	var changes []catalog.Change
	for _, b := range s.Batches {
		start = max(start, b.start+1) // this machine's clock may be behind that of Temporal
		if !b.Already {
			changes = append(changes, catalog.Change{DatasetID: s.DatasetID, Batch: b.Batch, Digest: b.Digest, Retired: !s.restore})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := catalog.PutPending(ctx, store, newRun(), start, changes); err != nil || !s.restore {
		return err
	}
	// From now on no garbage collection takes the batches, but one may have, since they were looked
	// at.
	err := catalog.AwaitSweep(ctx, store)
	if err == nil {
		err = s.measure(ctx, store)
	}
	if err != nil {
		for i := range changes {
			changes[i].Retired = true
		}
		err = errors.Join(err, catalog.PutPending(ctx, store, newRun(), start+1, changes))
	}
	return err
}

// newRun names what a command leaves to a publish.
func newRun() string {
	var run [8]byte
	rand.Read(run[:])
	return "command-" + hex.EncodeToString(run[:])
}

// Check finds the version in which the change is published. Skipped are the batches that the
// publish left out. If the version does not agree with the change, an error says why.
func (s *Selection) Check(ctx context.Context, store blob.Store, skipped []publish.Skipped) error {
	state, err := catalog.Look(ctx, store)
	if err != nil {
		return err
	}
	live, err := s.live(ctx, store)
	if err != nil {
		return err
	}
	for i := range s.Batches {
		b := &s.Batches[i]
		if _, has := live[s.name(b)]; has == s.restore {
			continue
		}
		reason := fmt.Sprintf("another ingest, or another command, was later; see %s", cli.Typed("starter status"))
		for _, skip := range skipped {
			if skip.Covers(s.DatasetID, b.Batch) {
				reason = skip.Reason
			}
		}
		if s.restore {
			return fmt.Errorf("batch %s of %s is restored, but no version has it: %s", b.Batch, s.Dataset, reason)
		}
		return fmt.Errorf("batch %s of %s is retired, but the version still has it: %s", b.Batch, s.Dataset, reason)
	}
	if state.Current != nil {
		s.Version = state.Current.ID
	}
	return nil
}

// shown is how many batches a text lists.
const shown = 10

// Print prints the selection for people.
func (s *Selection) Print(w io.Writer) {
	var changed, already []string
	for _, b := range s.Batches {
		if b.Already {
			already = append(already, b.Batch)
		} else {
			changed = append(changed, fmt.Sprintf("%s (%s)", b.Batch, cli.Plural(b.Rows, "row")))
		}
	}
	verb := "Retired"
	switch {
	case s.restore && s.DryRun:
		verb = "Would restore"
	case s.restore:
		verb = "Restored"
	case s.DryRun:
		verb = "Would retire"
	}
	if len(changed) > 0 {
		parquet := ""
		if s.Bytes > 0 { // else the rows are in parts with those of other batches
			parquet = fmt.Sprintf(", %s of Parquet", cli.Size(s.Bytes))
		}
		cli.Fprintf(w, "%s %s of %s: %s%s\n", verb, cli.Plural(int64(len(changed)), "batch"), s.Dataset,
			cli.Plural(s.Rows, "row"), parquet)
		printList(w, changed)
	}
	if len(already) > 0 {
		cli.Fprintf(w, "Retired already: %s of %s\n", cli.Plural(int64(len(already)), "batch"), s.Dataset)
		printList(w, already)
	}
	switch {
	case s.DryRun:
	case s.Version == "" && s.Workflow == "":
		cli.Fprintf(w, "The next publish makes a version of it.\n")
	case s.Version == "":
		cli.Fprintf(w, "A publish was asked for. To watch it: %s\n", cli.Typed("starter watch '"+s.Workflow+"'"))
	case s.restore:
		cli.Fprintf(w, "In version %s\n", s.Version)
	default:
		cli.Fprintf(w, "Not in version %s; versions before it answer as they did\n", s.Version)
	}
}

func printList(w io.Writer, names []string) {
	more := ""
	if n := len(names) - shown; n > 0 {
		names, more = names[:shown], fmt.Sprintf(" and %d more", n)
	}
	cli.Fprintf(w, "  %s%s\n", strings.Join(names, ", "), more)
}
