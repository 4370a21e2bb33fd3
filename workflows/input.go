package workflows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/urlake/urlake/lake/ingest"
)

// UnmarshalJSON takes what a person typed. A member that does not exist, such as a misspelt one, or one of the wrong type is no
// error yet: Temporal would word it as a payload that cannot be decoded. IngestWorkflow refuses the input.
func (in *IngestInput) UnmarshalJSON(data []byte) error {
	type plain IngestInput // without this method
	err := json.Unmarshal(data, (*plain)(in))
	if err == nil {
		// Resume is not typed, and another build may have written it.
		known := struct {
			ingest.Spec
			NoPublish json.RawMessage `json:"no_publish"`
			Resume    json.RawMessage `json:"resume"`
		}{}
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&known)
	}
	in.problem = ""
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typ) && typ.Field == "":
		in.problem = fmt.Sprintf("it is a JSON %s, want an object", typ.Value)
	case errors.As(err, &typ):
		in.problem = fmt.Sprintf("%s is a JSON %s, want a Go %s", strings.TrimPrefix(typ.Field, "Spec."), typ.Value, typ.Type)
	case err != nil:
		in.problem = strings.TrimPrefix(err.Error(), "json: ")
	}
	return nil
}
