// Package activities holds the Temporal activities that package workflows orders. There is one
// struct of dependencies for each pool of workers, with thin methods that call the lake and the
// index builder. The worker program registers the structs of its pools.
//
// Every activity may be retried, be killed at any point, or run on two workers at once: what it
// writes is named by its content or replaced by a conditional put. It heartbeats, so that it
// learns of a cancellation, and Temporal notices when its worker dies. Its errors have the type
// that the retry policies need: see FinalErrors.
//
// The steps that move data have a last argument deaths: how many workers died, or lost Temporal,
// while they ran this step.
package activities

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.temporal.io/sdk/temporal"

	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/frontier/migrate"
	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/codec"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/publish"
)

// The pools of workers. Each has its own task queue, so that it can be scaled alone.
const (
	// PoolControl plans, records and cleans up, which is little work, and runs the workflows.
	PoolControl = "control"
	// PoolNormalize reads raw objects and writes rows by partition. It needs processors and
	// network.
	PoolNormalize = "normalize"
	// PoolWrite sorts rows into Parquet. It needs processors, memory and local disk.
	PoolWrite = "write"
	// PoolIndex builds segments. It needs memory and local disk.
	PoolIndex = "index"
	// PoolPublish verifies segments and commits versions.
	PoolPublish = "publish"
	// PoolBackground runs what no ingest waits for: compactions, rebuilds, checks, exports and
	// feeds of the frontier. Its steps may take long, and would keep those of an ingest waiting.
	PoolBackground = "background"
)

// Pools lists all pools, in the order in which a batch passes through them.
var Pools = []string{PoolControl, PoolNormalize, PoolWrite, PoolIndex, PoolPublish, PoolBackground}

// TaskQueue returns the name of the task queue of one pool of one lake. The name contains the lake,
// so that a worker never gets the work of another lake.
func TaskQueue(lake, pool string) string { return pool + "@" + lake }

// Limits of the concurrency within a workflow. The planning activities return them to the workflow,
// so that a running workflow keeps its order of commands when a later build has other limits.
const (
	// window is how many activities of one workflow may be in flight. It is far below Temporal's
	// limit of 2,000 pending activities and keeps dozens of workers busy.
	window = 64
	// toldInOneStep is how many requests one TellIngests answers.
	toldInOneStep = 500
	// largeAtOnce is how many large lists are in progress at once. Each occupies staging with its
	// rows, and their steps alone keep many workers busy.
	largeAtOnce = 4
	// visitBatches is how many batches of visits one run ingests, so that its history stays short.
	// The next run takes the rest.
	visitBatches = 500
)

// Types of errors that a retry cannot fix.
const (
	// ErrInput means that the raw data or the request is wrong, or that the ingest has to start
	// from the beginning. The message names the object, the position and the reason. The staging of
	// the ingest is removed.
	ErrInput = "InputError"
	// ErrCorrupt means that an object of the lake is missing, or is not what was written. Its
	// detail is a Damage.
	ErrCorrupt = "CorruptError"
	// ErrLake means work of another lake, or of a lake with rules that differ from this build's.
	ErrLake = "LakeError"
	// ErrCrash means that a step killed its workers or panicked, again and again. The message names
	// the object that it read. The object may be innocent, so what the run has done is kept.
	ErrCrash = "CrashError"
	// ErrDeadline means that the operator's deadline passed before a step succeeded.
	ErrDeadline = "DeadlineError"
	// ErrPublish means that the publisher could not publish a batch.
	ErrPublish = "PublishError"
)

// FinalErrors are the types that the retry policies declare not retryable. Everything else is
// retried until the deadline: a store that is away, slow, full or refuses the worker, a full disk,
// a worker that stops. A person may mend each of these while the workflow waits.
var FinalErrors = []string{ErrInput, ErrCorrupt, ErrLake, ErrCrash, ErrPublish}

// Lake is what the activities of all pools need: the one lake that a worker serves, and the
// worker's resources.
type Lake struct {
	Store blob.Store
	// URL is the lake as the names of its task queues contain it.
	URL string
	// TempDir is the folder of spill files and of parts that are not yet in the store.
	TempDir string
	// Memory is shared by all pools of a process. Nil does not limit memory.
	Memory *Memory
}

// check returns an error for work of another lake. Task queues separate the lakes already, but an
// input typed by hand can name one lake on the queue of another.
func (l *Lake) check(url string) error {
	if url != l.URL {
		return temporal.NewNonRetryableApplicationError(
			fmt.Sprintf("this worker serves the lake %s, the work is for %s", l.URL, url), ErrLake, nil)
	}
	return nil
}

// Damage is the detail of an ErrCorrupt.
type Damage struct {
	// Mendable means that the run can continue with its staging once the damaged object, which is
	// not in the staging, is mended, or the missing one is put back. Missing staged objects are
	// made again.
	Mendable bool `json:"mendable,omitempty"`
}

// damageOf returns the detail of an error about damage. The registry, rules, the index and what
// waits can be mended by a rebuild; raw objects and parts cannot. A missing object may have been
// deleted by mistake, and can be put back.
func damageOf(err error) Damage {
	if errors.Is(err, blob.ErrNotExist) {
		return Damage{Mendable: true}
	}
	var c *codec.CorruptError
	mendable := errors.As(err, &c) && slices.ContainsFunc([]string{"registry/", "rules/", "index/", "pending/"},
		func(prefix string) bool { return strings.HasPrefix(c.File, prefix) })
	return Damage{Mendable: mendable}
}

// staged reports whether err is about an object in the staging of a run.
func staged(err error) bool { return strings.HasPrefix(blob.KeyOf(err), "staging/") }

// finalError gives an error that a retry cannot fix its type among FinalErrors and returns others
// as they are. The new error does not wrap err, because its text would contain that of err twice.
func finalError(err error) error {
	var input *ingest.InputError
	var form *lake.FormError
	var list *lake.MissingListError
	var mixed *publish.RulesError
	var stays *publish.MoveError
	var format *codec.FormatError
	var exported *postgres.InputError
	var fed *feed.InputError
	var migrated *migrate.InputError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &format) && strings.HasPrefix(format.Key, "staging/") && (format.Found > format.Known || format.Member != ""):
		return err // a worker of the version that wrote it may take the next attempt
	case errors.As(err, &fed), errors.As(err, &migrated):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	case errors.As(err, &exported):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	case errors.As(err, &input):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	case errors.As(err, &form), errors.As(err, &list), errors.As(err, &mixed), errors.As(err, &format):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrLake, nil)
	case errors.As(err, &stays):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrCorrupt, nil)
	case errors.Is(err, codec.ErrCorrupt), errors.Is(err, blob.ErrRange): // ErrRange: an object was truncated
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrCorrupt, nil, damageOf(err))
	case errors.Is(err, blob.ErrNotExist) && staged(err):
		return temporal.NewNonRetryableApplicationError(err.Error()+
			"; the staging of the run was cleaned up: start the same ingest again", ErrCorrupt, nil, damageOf(err))
	case errors.Is(err, blob.ErrNotExist): // of the lake; a missing input is an ingest.InputError
		return temporal.NewNonRetryableApplicationError(err.Error()+
			"; if it was deleted, put it back; starter verify names what else the lake lacks", ErrCorrupt, nil, damageOf(err))
	case errors.Is(err, blob.ErrInvalidKey):
		return temporal.NewNonRetryableApplicationError(err.Error(), ErrInput, nil)
	}
	return err
}
