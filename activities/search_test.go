package activities

import (
	"context"
	"errors"
	"strings"
	"testing"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/grpc"
)

// namespace is a client of a namespace with some search attributes.
type namespace struct {
	client.Client
	operatorservice.OperatorServiceClient
	attributes map[string]enums.IndexedValueType
	refuse     error
}

func (n *namespace) OperatorService() operatorservice.OperatorServiceClient { return n }

func (n *namespace) ListSearchAttributes(
	context.Context, *operatorservice.ListSearchAttributesRequest, ...grpc.CallOption,
) (*operatorservice.ListSearchAttributesResponse, error) {
	return &operatorservice.ListSearchAttributesResponse{CustomAttributes: n.attributes}, nil
}

func (n *namespace) AddSearchAttributes(
	_ context.Context, in *operatorservice.AddSearchAttributesRequest, _ ...grpc.CallOption,
) (*operatorservice.AddSearchAttributesResponse, error) {
	if n.refuse != nil {
		return nil, n.refuse
	}
	for name, kind := range in.GetSearchAttributes() {
		if _, ok := n.attributes[name]; ok {
			return nil, errors.New(name + " exists")
		}
		n.attributes[name] = kind
	}
	return &operatorservice.AddSearchAttributesResponse{}, nil
}

func TestSearchAttributesAreSetOnlyIfRegistered(t *testing.T) {
	keyword, text := enums.INDEXED_VALUE_TYPE_KEYWORD, enums.INDEXED_VALUE_TYPE_TEXT
	for name, c := range map[string]struct {
		has     map[string]enums.IndexedValueType
		refuse  error
		allowed bool
	}{
		"none": {map[string]enums.IndexedValueType{}, nil, true},
		"some": {map[string]enums.IndexedValueType{AttributeLake: keyword, "Other": text}, nil, true},
		"all": {map[string]enums.IndexedValueType{
			AttributeLake: keyword, AttributeDataset: keyword, AttributeBatch: keyword, AttributeVersion: keyword,
		}, errors.New("no permission"), true},
		"no permission": {map[string]enums.IndexedValueType{}, errors.New("no permission"), false},
		"another type":  {map[string]enums.IndexedValueType{AttributeBatch: text}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSearch(&namespace{attributes: c.has, refuse: c.refuse}, "ns")
			err := s.Register(t.Context())
			if (err == nil) != c.allowed {
				t.Errorf("register: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), "--namespace ns --name UrlakeLake --type Keyword --name") {
				t.Errorf("%q does not say what to do", err)
			}
			if got := s.Allowed(t.Context()); got != c.allowed {
				t.Errorf("allowed: %v, want %v", got, c.allowed)
			}
		})
	}
	var none *Search
	if none.Allowed(t.Context()) {
		t.Error("a nil Search allows attributes")
	}
}
