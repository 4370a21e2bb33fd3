package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/urlake/urlake/lake/manifest"
)

// writeView prints SQL for DuckDB: a view named urls of the rows of a version. Parts are its files.
//
// The columns url, dataset, domain_id and url_id are made of what the files hold. A canonical URL
// is put together as docs/formats/canonical-url.md says. Ids are stored as signed integers, because
// Parquet readers disagree on unsigned ones.
func writeView(ctx context.Context, w io.Writer, v *manifest.Version, parts []string) error {
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
	s.WriteString(`CREATE OR REPLACE VIEW urls AS
SELECT
  rows.scheme || '://' || rows.host || coalesce(':' || rows.port, '') || rows.path_query AS url,
  names.dataset,
  rows.* REPLACE (
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
	s.WriteString("], hive_partitioning = false) AS rows\nJOIN (VALUES\n")
	between := ""
	for d, err := range v.Datasets(ctx, 0) {
		if err != nil {
			return err
		}
		fmt.Fprintf(&s, "%s  (%d, %s)", between, d.ID, sqlText(d.Name))
		between = ",\n"
	}
	s.WriteString("\n) AS names (dataset_id, dataset) ON names.dataset_id = rows.dataset_id;\n")
	_, err := io.WriteString(w, s.String())
	return err
}

// sqlText is a text in SQL.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
