package command

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/urlake/urlake/export/urlkey"
	"github.com/urlake/urlake/internal/cli"
	"github.com/urlake/urlake/lake/catalog"
	"github.com/urlake/urlake/lake/urlnorm"
)

// normalized is one line of "normalize --json" for a URL. Port is null if it is the default port of
// the scheme.
type normalized struct {
	Input     string `json:"input"`
	Canonical string `json:"canonical"`
	Scheme    string `json:"scheme"`
	Host      string `json:"host"`
	Port      *int32 `json:"port"`
	PathQuery string `json:"path_query"`
	Domain    string `json:"domain"`
	DomainID  string `json:"domain_id"`
	URLID     string `json:"url_id"`
	Key       string `json:"key"`
}

// rejected is one line of "normalize --json" for a text that is not a URL.
type rejected struct {
	Input  string         `json:"input"`
	Reject urlnorm.Reason `json:"reject"`
}

func normalizeCommand(g *global) *cobra.Command {
	var strip []string
	var psl string
	cmd := &cobra.Command{
		Use:   "normalize [--json] [URL…]",
		Short: "Print the canonical form of URLs",
		Long: `Normalize prints one line for each URL on the command line, or without any for
each line of standard input, in input order.

A line is the canonical URL, a tab and the domain. For a text that is not a URL it is
a tab and the reason. With --json each line is an object, which also has the parts of
the URL and its ids.

The domain is found by the public suffix list of this program, with --lake by the list
that the lake follows, and with --psl by that of a file.

Rejected texts do not change the exit code. Normalize needs neither a lake nor
Temporal.`,
		Example: `  starter normalize 'HTTP://Example.COM:80/a/../b?z=1&a=2#top'
  zcat urls.gz | starter normalize --json
  starter normalize --psl public_suffix_list.dat a.b.example.co.uk`,
		RunE: func(cmd *cobra.Command, args []string) error {
			options := urlnorm.Options{StripParams: strip}
			if err := options.Check(); err != nil {
				return &cli.UsageError{Err: err}
			}
			list, err := g.suffixList(cmd.Context(), psl)
			if err != nil {
				return err
			}
			n, err := urlnorm.New(list, options)
			if err != nil {
				return err
			}
			out := bufio.NewWriterSize(cmd.OutOrStdout(), 64<<10)
			one := func(raw []byte) error { return writeNormalized(out, n, raw, g.json) }
			if len(args) > 0 {
				for _, a := range args {
					if err := one([]byte(a)); err != nil {
						return err
					}
				}
			} else if err := eachLine(cmd.InOrStdin(), one); err != nil {
				return err
			}
			return out.Flush()
		},
	}
	cmd.Flags().StringSliceVar(&strip, "strip-params", nil, "query `PARAMETERS` to strip: names or globs, e.g. 'utm_*,gclid'")
	cmd.Flags().StringVar(&psl, "psl", "", "public suffix list that decides domains, a "+pslUsage+" (default: that of this program)")
	g.lakeFlag(cmd)
	cmd.Flags().Lookup("lake").Usage = "`URL` of the lake whose public suffix list decides domains"
	return cmd
}

// suffixList returns the public suffix list in a file, or else that of the lake that --lake names,
// or else that of this program, which is also that of a new lake.
func (g *global) suffixList(ctx context.Context, file string) (*urlnorm.SuffixList, error) {
	switch {
	case file != "":
		return readListFile(file)
	case g.lake == "":
		return urlnorm.BuiltinSuffixes(), nil
	}
	store, _, err := g.store(ctx)
	if err != nil {
		return nil, err
	}
	_, list, err := catalog.LoadRules(ctx, store)
	return list, err
}

// eachLine calls each with every line, without its line end (\n or \r\n). Lines have no length
// limit. The last line need not end in one.
func eachLine(r io.Reader, each func([]byte) error) error {
	in := bufio.NewReaderSize(r, 256<<10)
	var long []byte
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("standard input: %w", err)
		}
		if len(long) > 0 {
			long = append(long, line...)
			line = long
		}
		if len(line) > 0 {
			if e := each(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))); e != nil {
				return e
			}
		}
		long = long[:0]
		if err == io.EOF {
			return nil
		}
	}
}

// writeNormalized writes the line for one text. Neither a canonical URL nor a domain can hold a
// character that needs escaping: both are printable ASCII.
func writeNormalized(w *bufio.Writer, n *urlnorm.Normalizer, raw []byte, asJSON bool) error {
	u, err := n.Parse(raw)
	var reject *urlnorm.RejectError
	if err != nil && !errors.As(err, &reject) {
		return err
	}
	if !asJSON {
		if reject != nil {
			_, err = fmt.Fprintf(w, "\t%s\n", reject.Reason)
		} else {
			_, err = fmt.Fprintf(w, "%s\t%s\n", u.String(), u.Domain)
		}
		return err
	}
	if reject != nil {
		return cli.WriteJSON(w, rejected{string(raw), reject.Reason}, false)
	}
	canonical := u.String()
	out := normalized{
		Input: string(raw), Canonical: canonical, Scheme: u.Scheme, Host: u.Host, PathQuery: u.PathQuery, Domain: u.Domain,
		DomainID: urlnorm.FormatID(urlnorm.DomainID(u.Domain)), URLID: urlnorm.FormatID(urlnorm.URLID([]byte(canonical))),
		Key: strconv.FormatUint(urlkey.Key(canonical), 10),
	}
	if u.Port >= 0 {
		out.Port = &u.Port
	}
	return cli.WriteJSON(w, out, false)
}
