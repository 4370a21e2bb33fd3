package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/access"
	"github.com/urlake/urlake/lake/blob"
)

// newTokenCommand returns "starter token" with its verbs.
func newTokenCommand(g *global) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke tokens for servers with --auth tokens",
		Long: `Token makes the tokens by which servers with --auth tokens know who asks. A client sends
one as "Authorization: Bearer TOKEN" and may then read what "starter acl" allows its name,
besides what is public. The lake keeps a hash of each token, not the token.`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(cmd.ErrOrStderr())
			if err := cmd.Help(); err != nil {
				return err
			}
			return cli.Usagef("no verb given; choose create, list or revoke")
		},
	}
	cmd.AddCommand(g.createTokenCommand(), g.listTokenCommand(), g.revokeTokenCommand())
	return cmd
}

// parseExpiry returns when a token ends that is made now: after a duration, or at a date.
func parseExpiry(text string, now time.Time) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil && n > 0 {
			at := now.AddDate(0, 0, int(n))
			return &at, nil
		}
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		at := now.Add(d)
		return &at, nil
	}
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(form, text); err == nil && at.After(now) {
			return &at, nil
		}
	}
	return nil, cli.Usagef("--expires %q is no time in the future; use e.g. 90d, 12h or 2027-01-31", text)
}

func checkName(name string) error {
	if name == "" {
		return cli.Usagef("no name given; use --name NAME, the name that is a reader in starter acl")
	}
	if err := access.CheckName(name); err != nil {
		return &cli.UsageError{Err: err}
	}
	return nil
}

func (g *global) createTokenCommand() *cobra.Command {
	var name, expires string
	var ahead bool
	cmd := &cobra.Command{
		Use:   "create --lake URL --name NAME [--expires TIME]",
		Short: "Make a token and print it, once",
		Long: `Create makes a random token for NAME and prints it. It is not kept and cannot be shown
again. A name can have several tokens, so that one can be replaced before the other ends.`,
		Example: `  starter token create --lake /data/lake --name ada --expires 90d
  starter token create --lake s3://b/lake --name web-1 --expires 2027-01-31 --json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			now := time.Now()
			if err := checkName(name); err != nil {
				return err
			}
			at, err := parseExpiry(expires, now)
			if err != nil {
				return err
			}
			return g.runAccess(cmd, ahead, func(ctx context.Context, store blob.Store, out io.Writer) error {
				text, tok, err := access.NewToken(ctx, store, name, now, at)
				if err != nil {
					return err
				}
				if g.json {
					return cli.WriteJSON(out, struct {
						Token   string     `json:"token"`
						ID      string     `json:"id"`
						Name    string     `json:"name"`
						Expires *time.Time `json:"expires"`
					}{text, tok.ID, tok.Name, tok.Expires}, true)
				}
				cli.Fprintf(out, "%s\n\nThis is token %s of %s; %s. It is shown this once. Servers take it after their next look\n"+
					"at the lake, 2 seconds by default.\n", text, tok.ID, tok.Name, expiry(&tok))
				return nil
			})
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "`NAME` of whoever presents the token, as in starter acl --readers")
	f.StringVar(&expires, "expires", "", "`TIME` when it ends: 90d, 12h, or a date (default: never)")
	f.BoolVar(&ahead, "ahead", false, "the lake need not be there yet")
	return cmd
}

func expiry(t *access.Token) string {
	if t.Expires == nil {
		return "it does not expire"
	}
	return "it expires " + t.Expires.Format(time.RFC3339)
}

// state says for people whether a token is taken.
func state(t *access.Token, now time.Time) string {
	switch err := t.Ended(now); {
	case errors.Is(err, access.ErrRevoked):
		return "revoked " + t.Revoked.Format(time.DateOnly)
	case errors.Is(err, access.ErrExpired):
		return "expired " + t.Expires.Format(time.DateOnly)
	}
	return expiry(t)
}

// listedAccess is a token on record, without its hash.
type listedAccess struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Created time.Time  `json:"created"`
	Expires *time.Time `json:"expires"`
	Revoked *time.Time `json:"revoked"`
	Taken   bool       `json:"taken"`
}

func (g *global) listTokenCommand() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:     "list --lake URL [--name NAME]",
		Short:   "List the tokens, without what is secret",
		Example: `  starter token list --lake /data/lake`,
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return g.runAccess(cmd, false, func(ctx context.Context, store blob.Store, out io.Writer) error {
				t, err := access.LoadTokens(ctx, store)
				if err != nil {
					return err
				}
				now := time.Now()
				list := []listedAccess{}
				rows := [][]string{}
				for i := range t.Tokens {
					tok := &t.Tokens[i]
					if name != "" && tok.Name != name {
						continue
					}
					list = append(list, listedAccess{tok.ID, tok.Name, tok.Created, tok.Expires, tok.Revoked, tok.Ended(now) == nil})
					rows = append(rows, []string{tok.ID, tok.Name, tok.Created.Format(time.DateOnly), state(tok, now)})
				}
				switch {
				case g.json:
					return cli.WriteJSON(out, list, true)
				case len(rows) == 0:
					cli.Fprintf(out, "The lake has no such token; %s makes one.\n", cli.Typed("starter token create"))
					return nil
				}
				return cli.Table(out, "ID NAME CREATED STATE", rows)
			})
		},
	}
	g.lakeFlag(cmd)
	cmd.Flags().StringVar(&name, "name", "", "only those of this `NAME`")
	return cmd
}

func (g *global) revokeTokenCommand() *cobra.Command {
	var name, id string
	var all bool
	cmd := &cobra.Command{
		Use:   "revoke --lake URL (--name NAME [--id ID] | --all)",
		Short: "End tokens at once",
		Long: `Revoke ends all tokens of a name, or one of them. Servers refuse them after their next look
at the lake, 2 seconds by default. Revoked tokens stay in the list for 90 days.

--all ends every token of the lake and forgets it. It works when the list of tokens is
damaged, too.`,
		Example: `  starter token revoke --lake /data/lake --name ada
  starter token revoke --lake /data/lake --name web-1 --id 0f3c9a7152d8`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && (name != "" || id != "") {
				return cli.Usagef("--all is of all names; leave --name and --id out")
			}
			if !all {
				if err := checkName(name); err != nil {
					return err
				}
			}
			return g.runAccess(cmd, false, func(ctx context.Context, store blob.Store, out io.Writer) error {
				var ended int
				var ids []string
				if all {
					var err error
					if ended, err = access.RevokeAll(ctx, store); err != nil {
						return err
					}
				} else {
					list, err := access.Revoke(ctx, store, name, id, time.Now())
					if err != nil {
						return err
					}
					if len(list) == 0 {
						return fmt.Errorf("no token of %s to revoke; %s shows those that there are", describe(name, id), cli.Typed("starter token list"))
					}
					for _, tok := range list {
						ids = append(ids, tok.ID)
					}
					ended = len(list)
				}
				if g.json {
					return cli.WriteJSON(out, struct {
						Revoked int      `json:"revoked"`
						IDs     []string `json:"ids,omitempty"`
					}{ended, ids}, true)
				}
				cli.Fprintf(out, "%s revoked. Servers refuse them after their next look at the lake, 2 seconds by default.\n",
					cli.Plural(int64(ended), "token"))
				return nil
			})
		},
	}
	g.lakeFlag(cmd)
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "the tokens of this `NAME`")
	f.StringVar(&id, "id", "", "only the token with this `ID`")
	f.BoolVar(&all, "all", false, "all tokens of the lake")
	return cmd
}

func describe(name, id string) string {
	if id == "" {
		return name
	}
	return name + " with the id " + id
}
