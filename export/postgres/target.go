package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/urlake/urlake/lake/ingest/allow"
)

// DefaultSchema is the schema of an export that names none.
const DefaultSchema = "urlake"

// envPrefix begins a DSN that names a variable of the worker's environment, variablePrefix the
// names that it may have. Others could be secrets of something else, which an error of a parser
// would show.
const (
	envPrefix      = "env:"
	variablePrefix = "URLAKE_DSN"
)

// minServer is the oldest PostgreSQL that an export writes to, as server_version_num.
const minServer = 140000

// Target is a schema of a database.
type Target struct {
	// DSN says how workers connect. It is a URL or keywords and values, as libpq takes them, with
	// the settings of typedSettings alone; or "env:NAME" for the DSN in the worker's environment
	// variable NAME. Only a variable may hold a password, name a file, or lead to a host that the
	// worker's --allow-target does not name: anyone who may start a workflow can type the other
	// forms.
	DSN    string
	Schema string
}

// typedSettings are the settings that a DSN outside of a variable may have. None of them names a
// file or holds a secret.
var typedSettings = []string{
	"application_name", "connect_timeout", "database", "dbname", "host", "port", "sslmode", "target_session_attrs", "user",
}

// InputError means that the request, or what the database has, does not allow the export. A retry
// cannot help; the text says what to do.
type InputError struct{ Reason string }

func (e *InputError) Error() string { return e.Reason }

func inputf(format string, args ...any) error { return &InputError{fmt.Sprintf(format, args...)} }

var (
	schemaName   = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)
	variableName = regexp.MustCompile(`^` + variablePrefix + `[A-Z0-9_]*$`)
	refusedKey   = regexp.MustCompile(`connection string key "(\w+)" is not in ConnStringAllowedKeys`)
)

// CheckDSN returns an error for a DSN that is malformed, or that has a setting which only a
// variable of the workers may have. A password would be kept in the history of the workflow and
// shown by Temporal.
func CheckDSN(dsn string) error {
	if name, ok := strings.CutPrefix(dsn, envPrefix); ok {
		if !variableName.MatchString(name) {
			return fmt.Errorf("%q names no variable that a DSN may be in: its name begins with %s", name, variablePrefix)
		}
		return nil
	}
	_, err := parseTyped(dsn)
	return err
}

// parseTyped parses a DSN that is not the worker's own. Its errors show no values, which may be
// secrets.
func parseTyped(dsn string) (*pgx.ConnConfig, error) {
	const instead = "give --dsn env:" + variablePrefix + "… with a variable of the workers that holds the whole DSN"
	if strings.TrimSpace(dsn) == "" {
		return nil, errors.New("it is empty; use e.g. postgres://user@host/database")
	}
	// The keys are checked by the parser itself, before it opens a file.
	options := pgconn.ParseConfigOptions{ConnStringAllowedKeys: typedSettings}
	cfg, err := pgx.ParseConfigWithOptions(dsn, pgx.ParseConfigOptions{ParseConfigOptions: options})
	if err == nil {
		return cfg, nil
	}
	key := refusedKey.FindStringSubmatch(err.Error())
	switch {
	case key == nil:
		return nil, errors.New("it is malformed; use e.g. postgres://user@host/database, or keywords with values")
	case strings.Contains(key[1], "password"):
		return nil, errors.New("it has a password, which the history of a workflow would keep; " + instead)
	}
	return nil, fmt.Errorf("it has the setting %q; only %s may be given here: %s", key[1], strings.Join(typedSettings, ", "), instead)
}

// CheckSchema returns an error for a name that is none of a schema.
func CheckSchema(name string) error {
	if !schemaName.MatchString(name) || strings.HasPrefix(name, "pg_") || name == "public" || name == "information_schema" {
		return fmt.Errorf("%q is no name for a schema of its own; use lower-case letters, digits and _, as in %s", name, DefaultSchema)
	}
	return nil
}

// keepalive makes the server notice within a minute that a worker is gone, so that the
// transaction of a dead worker does not keep another from taking over.
var keepalive = map[string]string{
	"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4",
	"tcp_user_timeout": "30000", "idle_in_transaction_session_timeout": "60000",
}

// configOf returns how to connect. A typed DSN leads only to hosts that workers may connect to, and
// is used without the passwords and certificates in the worker's environment.
func configOf(ctx context.Context, dsn string) (*pgx.ConnConfig, error) {
	if err := CheckDSN(dsn); err != nil {
		return nil, inputf("DSN: %v", err)
	}
	if name, ok := strings.CutPrefix(dsn, envPrefix); ok {
		own := os.Getenv(name)
		if own == "" {
			return nil, inputf("the environment of this worker has no variable %s, which the DSN names", name)
		}
		cfg, err := pgx.ParseConfig(own)
		if err != nil {
			return nil, inputf("the variable of the DSN %s is malformed", dsn)
		}
		return cfg, nil
	}
	cfg, err := parseTyped(dsn)
	if err != nil {
		return nil, inputf("DSN: %v", err)
	}
	// Nothing that the worker's environment or home has for others goes there.
	cfg.Password = ""
	cfg.RuntimeParams = map[string]string{"application_name": cfg.RuntimeParams["application_name"]}
	withoutCertificate(cfg.TLSConfig)
	for _, other := range cfg.Fallbacks {
		withoutCertificate(other.TLSConfig)
	}
	targets := allow.TargetsOf(ctx)
	err = targets.Check(cfg.Host, cfg.Port)
	for _, other := range cfg.Fallbacks {
		err = cmp.Or(err, targets.Check(other.Host, other.Port))
	}
	if err != nil {
		return nil, inputf("DSN: %v; a DSN in a variable of theirs, --dsn env:%s…, leads anywhere", err, variablePrefix)
	}
	return cfg, nil
}

// withoutCertificate makes a client show no certificate.
func withoutCertificate(c *tls.Config) {
	if c != nil {
		c.Certificates, c.GetClientCertificate = nil, nil
	}
}

// Connect connects to the target for program. Unqualified names are those of its schema. The error
// names neither a password nor the DSN of a variable; one that no retry mends is an *InputError.
func Connect(ctx context.Context, t Target, program string) (*pgx.Conn, error) {
	cfg, err := configOf(ctx, t.DSN)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = cmp.Or(cfg.RuntimeParams["application_name"], program)
	cfg.RuntimeParams["search_path"] = t.Schema
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["statement_timeout"] = "0" // a step may take hours
	for k, v := range keepalive {
		if cfg.RuntimeParams[k] == "" {
			cfg.RuntimeParams[k] = v
		}
	}
	cfg.ConnectTimeout = cmp.Or(cfg.ConnectTimeout, 30*time.Second)
	cfg.AfterConnect = func(ctx context.Context, c *pgconn.PgConn) error {
		// A statement of a worker that died ends soon, though it sends nothing. Servers of some
		// operating systems cannot do that, and refuse.
		_, err := c.Exec(ctx, "SET client_connection_check_interval = '10s'").ReadAll()
		var refused *pgconn.PgError
		if errors.As(err, &refused) {
			return nil
		}
		return err
	}
	// Statements are few and tables come and go, so nothing is prepared.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, explain("connect to PostgreSQL", err)
	}
	return c, nil
}

// connect is Connect for an export.
func connect(ctx context.Context, t Target) (*pgx.Conn, error) {
	return Connect(ctx, t, "urlake export")
}

// closing bounds how long a connection that is no longer needed is waited for.
const closing = 5 * time.Second

func disconnect(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	c.Close(ctx) // the server ends the session in any case
}

// Codes of PostgreSQL's errors.
const (
	codeForeign     = "23503"
	codeUnique      = "23505"
	codeCheck       = "23514"
	codeDependent   = "2BP01"
	codeLockTimeout = "55P03"
	codeDiskFull    = "53100"
	codeMemory      = "53200"
	codeRight       = "42501"
	codeExists      = "42P07"
)

// final are the codes, or classes of codes, that a retry does not mend.
var final = []string{
	"28",          // the user is refused
	"3D",          // no such database
	"42",          // a table, a column or a right that is missing: the schema was changed by hand
	"3F000",       // no such schema
	codeForeign,   // a table of the user refers to rows that go
	codeCheck,     // a constraint that was added by hand
	codeDependent, // a view, say, of a partition
	"22021",       // text that the database's encoding lacks
	"22P05",
}

// explain names the operation, and says what to do about the usual errors of a server.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	var input *InputError
	var told *serverError
	if errors.As(err, &input) || errors.As(err, &told) || !errors.As(err, &e) {
		return fmt.Errorf("%s: %w", what, err)
	}
	text := fmt.Sprintf("%s: PostgreSQL: %s (SQLSTATE %s)", what, e.Message, e.Code)
	if e.TableName != "" {
		text += ", table " + e.TableName
	}
	if e.Detail != "" && !strings.HasPrefix(e.Code, "23") { // details of violated constraints have values of rows
		text += ": " + e.Detail
	}
	switch {
	case e.Code == codeDiskFull:
		text += "; nothing of this step is visible; make room and the export goes on"
	case e.Code == codeMemory:
		text += "; a table of the export takes a lock: raise max_locks_per_transaction if there are thousands of datasets"
	case strings.HasPrefix(e.Code, "28"), strings.HasPrefix(e.Code, "3D"):
	case e.Code == codeRight:
		text += "; give the user the rights that docs/postgres.md names"
	case e.Code == codeExists:
		text += "; rename the table or index of that name, or move it to another schema, and export again"
	case e.Code == codeCheck:
		text += "; was a constraint added by hand? take the constraint away, and export again"
	case e.Code == codeLockTimeout:
		text += "; another session holds a lock, and the export tries again"
	case e.Code == codeForeign:
		text += "; a table of yours refers to rows that the export removes: drop its foreign key, and export again"
	case e.Code == codeDependent:
		text += "; an export replaces partitions: drop what depends on one, let it depend on the table " + urlsTable + ", and export again"
	case strings.HasPrefix(e.Code, "42"), e.Code == "3F000":
		text += "; the schema was changed by hand: undo that, or export into another schema"
	}
	for _, f := range final {
		if strings.HasPrefix(e.Code, f) {
			return &InputError{text}
		}
	}
	return &serverError{text, err}
}

// serverError is an error of the server that may pass.
type serverError struct {
	text string
	err  error
}

func (e *serverError) Error() string { return e.text }
func (e *serverError) Unwrap() error { return e.err }

// hasCode reports whether err is an error of the server with a code.
func hasCode(err error, code string) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == code
}
