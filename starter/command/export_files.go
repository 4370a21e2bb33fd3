package command

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/urlake/urlake/lake"
	"github.com/urlake/urlake/lake/blob"
	"github.com/urlake/urlake/lake/catalog"
)

// reads is how many batch records are read concurrently.
const reads = 16

// versionFiles are the Parquet files of a version.
type versionFiles struct {
	// Paths are the files in the version's order, by the names that an engine on this machine
	// opens: paths of a local lake, URLs of others.
	Paths []string
	// Dead are the rows of these files that the version does not have.
	Dead []deadRows
}

// deadRows are rows of files of a union whose batches the version does not have, or has elsewhere.
type deadRows struct {
	Paths   []string
	Batches []string
}

// ReadFiles lists the Parquet files of a version. A union is listed where the first of its batches
// is.
func ReadFiles(ctx context.Context, store blob.Store, lakeURL string, v *catalog.Version) (*versionFiles, error) {
	root := lakeURL
	if u, err := url.Parse(lakeURL); err == nil && u.Scheme == "file" {
		root = u.Path
	}
	var keys []string                    // of the records
	live := map[string]map[string]bool{} // batches, by key
	for b, err := range v.Batches(ctx) {
		if err != nil {
			return nil, err
		}
		name, digest := b.Stored()
		key := lake.BatchKey(b.DatasetID, name, digest)
		if live[key] == nil {
			live[key] = map[string]bool{}
			keys = append(keys, key)
		}
		live[key][b.Batch] = true
	}
	records := make([]*lake.Batch, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(reads)
	for i, key := range keys {
		group.Go(func() error {
			data, _, err := store.Get(ctx, key)
			if err == nil {
				records[i], err = lake.DecodeBatch(data, key)
			}
			if err != nil {
				return fmt.Errorf("list the files of version %s: %w", v.ID, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f := &versionFiles{Paths: []string{}}
	for i, r := range records {
		first := len(f.Paths)
		for _, p := range r.Parts {
			f.Paths = append(f.Paths, root+"/"+p.Key)
		}
		var dead []string
		for _, m := range r.Members {
			if !live[keys[i]][m.Batch] {
				dead = append(dead, m.Batch)
			}
		}
		if len(dead) > 0 {
			f.Dead = append(f.Dead, deadRows{f.Paths[first:len(f.Paths):len(f.Paths)], dead})
		}
	}
	return f, nil
}

// WriteView prints SQL for DuckDB: a view named urls of the rows of the version.
//
// The columns url, dataset, domain_id and url_id are made of what the files hold. A canonical URL
// is put together as docs/formats/canonical-url.md says. Ids are stored as signed integers, because
// Parquet readers disagree on unsigned ones.
func (f *versionFiles) WriteView(ctx context.Context, w io.Writer, v *catalog.Version) error {
	parts := f.Paths
	var s strings.Builder
	fmt.Fprintf(&s, "-- The rows of version %s.\n", v.ID)
	for _, p := range parts {
		if strings.HasPrefix(p, "s3://") {
			s.WriteString("-- Where AWS_ENDPOINT_URL_S3 is set, name it: CREATE SECRET (TYPE s3, PROVIDER credential_chain,\n" +
				"-- ENDPOINT 'host:port', URL_STYLE 'path', USE_SSL false);\n" +
				"INSTALL httpfs; LOAD httpfs; INSTALL aws; LOAD aws;\n" +
				"CREATE SECRET IF NOT EXISTS urlake (TYPE s3, PROVIDER credential_chain);\n")
			break
		}
	}
	without, options := "", ""
	if len(f.Dead) > 0 {
		without, options = " EXCLUDE (filename)", ", filename = true"
	}
	s.WriteString(`CREATE OR REPLACE VIEW urls AS
SELECT
  rows.scheme || '://' || rows.host || coalesce(':' || rows.port, '') || rows.path_query AS url,
  names.dataset,
  rows.*` + without + ` REPLACE (
    (CASE WHEN rows.domain_id < 0 THEN rows.domain_id + 18446744073709551616 ELSE rows.domain_id END)::UBIGINT AS domain_id,
    (CASE WHEN rows.url_id < 0 THEN rows.url_id + 18446744073709551616 ELSE rows.url_id END)::UBIGINT AS url_id
  )
FROM `)
	if len(parts) == 0 {
		return fmt.Errorf("version %s has no rows, so there is nothing to make a view of", v.ID)
	}
	s.WriteString("read_parquet([\n")
	for i, p := range parts {
		end := ","
		if i == len(parts)-1 {
			end = ""
		}
		fmt.Fprintf(&s, "  %s%s\n", sqlText(p), end)
	}
	// The folders are named like columns, which the files have themselves.
	s.WriteString("], hive_partitioning = false" + options + ") AS rows\nJOIN (VALUES\n")
	between := ""
	for d, err := range v.Datasets(ctx, 0) {
		if err != nil {
			return err
		}
		fmt.Fprintf(&s, "%s  (%d, %s)", between, d.ID, sqlText(d.Name))
		between = ",\n"
	}
	s.WriteString("\n) AS names (dataset_id, dataset) ON names.dataset_id = rows.dataset_id")
	// Batches that were taken out since these files were written.
	for i, d := range f.Dead {
		s.WriteString([]string{"\nWHERE", "\nAND"}[min(i, 1)])
		fmt.Fprintf(&s, " NOT (rows.batch IN (%s) AND rows.filename IN (%s))", sqlTexts(d.Batches), sqlTexts(d.Paths))
	}
	s.WriteString(";\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// sqlTexts is a list of texts in SQL.
func sqlTexts(all []string) string {
	quoted := make([]string, len(all))
	for i := range all {
		quoted[i] = sqlText(all[i])
	}
	return strings.Join(quoted, ", ")
}

// sqlText is a text in SQL.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
