package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/urlake/urlake/activities"
	"github.com/urlake/urlake/export/postgres"
	"github.com/urlake/urlake/frontier/feed"
	"github.com/urlake/urlake/frontier/migrate"
	"github.com/urlake/urlake/lake/ingest"
	"github.com/urlake/urlake/lake/ingest/many"
)

// UnmarshalJSON decodes what a person typed. An unknown member, for example a misspelt one, and a
// member of the wrong type are not errors here, because Temporal would report only that a payload
// cannot be decoded. They are kept in problem, and IngestWorkflow rejects the input.
func (in *IngestInput) UnmarshalJSON(data []byte) error {
	type plain IngestInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		// Resume is not typed by a person, and another build may have written it.
		known := struct {
			ingest.Spec
			NoPublish json.RawMessage `json:"no_publish"`
			Resume    json.RawMessage `json:"resume"`
			List      json.RawMessage `json:"list"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *IngestManyInput) UnmarshalJSON(data []byte) error {
	type plain IngestManyInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		known := struct {
			many.Spec
			NoPublish json.RawMessage `json:"no_publish"`
			Resume    json.RawMessage `json:"resume"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *GCInput) UnmarshalJSON(data []byte) error {
	type plain GCInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		known := struct {
			activities.GarbageSpec
			Deadline json.RawMessage `json:"deadline"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *RebuildInput) UnmarshalJSON(data []byte) error {
	type plain RebuildInput // without this method
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	in.problem = problemOf(d.Decode((*plain)(in)))
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *VerifyInput) UnmarshalJSON(data []byte) error {
	type plain VerifyInput // without this method
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	in.problem = problemOf(d.Decode((*plain)(in)))
	return nil
}

// checkResume refuses the state of an earlier run in an input that a person has typed: only a
// workflow that continues as new passes it on.
func checkResume(ctx workflow.Context) error {
	if workflow.GetInfo(ctx).ContinuedExecutionRunID != "" {
		return nil
	}
	return temporal.NewNonRetryableApplicationError(
		"resume is the state of an earlier run, which only the workflow itself passes on; leave it out", activities.ErrInput, nil)
}

// problemOf says what is wrong with an input's JSON, "" if nothing is.
func problemOf(err error) string {
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		return fmt.Sprintf("it is a JSON %s; use an object", typ.Value)
	case errors.As(err, &typ):
		field := typ.Field
		for field != "" && unicode.IsUpper(rune(field[0])) { // an embedded struct
			_, field, _ = strings.Cut(field, ".")
		}
		return fmt.Sprintf("%s is a JSON %s; it has the Go type %s", field, typ.Value, typ.Type)
	case err != nil:
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	return ""
}

// UnmarshalJSON is as for IngestInput.
func (in *PostgresExportInput) UnmarshalJSON(data []byte) error {
	type plain PostgresExportInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		known := struct {
			postgres.Spec
			Deadline json.RawMessage `json:"deadline"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *CrawlSeedInput) UnmarshalJSON(data []byte) error {
	type plain CrawlSeedInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		known := struct {
			feed.SeedSpec
			Deadline json.RawMessage `json:"deadline"`
			Resume   json.RawMessage `json:"resume"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *VisitedIngestInput) UnmarshalJSON(data []byte) error {
	type plain VisitedIngestInput // without this method
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	in.problem = problemOf(d.Decode((*plain)(in)))
	return nil
}

// UnmarshalJSON is as for IngestInput.
func (in *FrontierMigrateInput) UnmarshalJSON(data []byte) error {
	type plain FrontierMigrateInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		known := struct {
			migrate.Spec
			Deadline json.RawMessage `json:"deadline"`
			Resume   json.RawMessage `json:"resume"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = problemOf(err)
	return nil
}
