package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/urlake/urlake/export/domain64/numbers"
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

// CheckDSN returns an error for a DSN that says in no valid way how workers connect: by a URL or
// keywords and values, as libpq takes them, with the settings of typedSettings alone, or "env:NAME"
// for the DSN in the worker's environment variable NAME. Only a variable may hold a password, name
// a file, or lead to a host that the worker's --allow-target does not name: anyone who may start a
// workflow can type the other forms, and its history keeps and shows them.
func CheckDSN(dsn string) error {
	_, _, err := parse(dsn)
	return err
}

// parse returns the variable that a DSN names, or the configuration of a typed one. Its errors show
// no values, which may be secrets.
func parse(dsn string) (typed *pgx.ConnConfig, variable string, err error) {
	if name, ok := strings.CutPrefix(dsn, envPrefix); ok {
		if !variableName.MatchString(name) {
			err = fmt.Errorf("%q names no variable that a DSN may be in: its name begins with %s", name, variablePrefix)
		}
		return nil, name, err
	}
	const instead = "give --dsn env:" + variablePrefix + "… with a variable of the workers that holds the whole DSN"
	if strings.TrimSpace(dsn) == "" {
		return nil, "", errors.New("it is empty; use e.g. postgres://user@host/database")
	}
	// The keys are checked by the parser itself, before it opens a file.
	options := pgconn.ParseConfigOptions{ConnStringAllowedKeys: typedSettings}
	typed, err = pgx.ParseConfigWithOptions(dsn, pgx.ParseConfigOptions{ParseConfigOptions: options})
	if err == nil {
		return typed, "", nil
	}
	key := refusedKey.FindStringSubmatch(err.Error())
	switch {
	case key == nil:
		err = errors.New("it is malformed; use e.g. postgres://user@host/database, or keywords with values")
	case strings.Contains(key[1], "password"):
		err = errors.New("it has a password, which the history of a workflow would keep; " + instead)
	default:
		err = fmt.Errorf("it has the setting %q; only %s may be given here: %s", key[1], strings.Join(typedSettings, ", "), instead)
	}
	return nil, "", err
}

// settings are those of a session that its DSN does not set. They make the server notice within a
// minute that a worker is gone, so that the transaction of a dead worker does not keep another from
// taking over.
var settings = map[string]string{
	"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "4",
	"tcp_user_timeout": "30000", "idle_in_transaction_session_timeout": "60000",
}

// configOf returns how to connect. A typed DSN leads only to hosts that workers may connect to, and
// is used without the passwords and certificates in the worker's environment.
func configOf(ctx context.Context, dsn string) (*pgx.ConnConfig, error) {
	cfg, variable, err := parse(dsn)
	if err != nil {
		return nil, inputf("DSN: %v", err)
	}
	if variable != "" {
		own := os.Getenv(variable)
		if own == "" {
			return nil, inputf("the environment of this worker has no variable %s, which the DSN names", variable)
		}
		if cfg, err = pgx.ParseConfig(own); err != nil {
			return nil, inputf("the variable of the DSN %s is malformed", dsn)
		}
		return cfg, nil
	}
	// Nothing that the worker's environment or home has for others goes there.
	cfg.Password = ""
	cfg.RuntimeParams = map[string]string{"application_name": cfg.RuntimeParams["application_name"]}
	targets := allow.TargetsOf(ctx)
	for _, at := range slices.Concat([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks) {
		if at.TLSConfig != nil {
			at.TLSConfig.Certificates, at.TLSConfig.GetClientCertificate = nil, nil
		}
		if err := targets.Check(at.Host, at.Port); err != nil {
			return nil, inputf("DSN: %v; a DSN in a variable of theirs, --dsn env:%s…, leads anywhere", err, variablePrefix)
		}
	}
	return cfg, nil
}

// Connect connects to a database for program. Unqualified names belong to the schema. The error
// names neither a password nor the DSN of a variable; one that no retry mends is an *InputError.
func Connect(ctx context.Context, dsn, schema, program string) (*pgx.Conn, error) {
	cfg, err := configOf(ctx, dsn)
	if err != nil {
		return nil, err
	}
	cfg.RuntimeParams["application_name"] = cmp.Or(cfg.RuntimeParams["application_name"], program)
	cfg.RuntimeParams["search_path"] = schema
	cfg.RuntimeParams["timezone"] = "UTC"
	cfg.RuntimeParams["statement_timeout"] = "0" // a step may take hours
	for k, v := range settings {
		cfg.RuntimeParams[k] = cmp.Or(cfg.RuntimeParams[k], v)
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
func connect(ctx context.Context, s *Spec) (*pgx.Conn, error) {
	return Connect(ctx, s.DSN, s.Schema, "urlake export")
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
	codeUnique      = "23505"
	codeLockTimeout = "55P03"
)

// hints say, for codes or classes of codes of PostgreSQL's errors, what to do, and whether a retry
// cannot mend them. The first that fits counts.
var hints = []struct {
	code  string
	final bool
	text  string
}{
	{"28", true, ""},    // the user is refused
	{"3D", true, ""},    // no such database
	{"22021", true, ""}, // text that the database's encoding lacks
	{"22P05", true, ""},
	{"53100", false, "; nothing of this step is visible; make room and the export goes on"},
	{"53200", false, "; a table of the export takes a lock: raise max_locks_per_transaction if there are thousands of datasets"},
	{codeLockTimeout, false, "; another session holds a lock, and the export tries again"},
	{"42501", true, "; give the user the rights that docs/postgres.md names"},
	{"42P07", true, "; rename the table or index of that name, or move it to another schema, and export again"},
	{"23514", true, "; was a constraint added by hand? take the constraint away, and export again"},
	{"23503", true, "; a table of yours refers to rows that the export removes: drop its foreign key, and export again"},
	{"2BP01", true, "; an export replaces partitions: drop what depends on one, let it depend on the table " + urlsTable + ", and export again"},
	{"42", true, "; the schema was changed by hand: undo that, or export into another schema"},
	{"3F000", true, "; the schema was changed by hand: undo that, or export into another schema"},
}

// explain names the operation, and says what to do about the usual errors of a server.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	var e *pgconn.PgError
	var input *InputError
	var told *serverError
	var full *numbers.FullError
	if errors.As(err, &full) {
		return &InputError{full.Error()}
	}
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
	for _, h := range hints {
		if !strings.HasPrefix(e.Code, h.code) {
			continue
		}
		if text += h.text; h.final {
			return &InputError{text}
		}
		break
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
