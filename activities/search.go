package activities

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/sdk/client"
)

// The search attributes of workflows, all of type Keyword. Only ingests have a dataset and a batch.
// The version is the one that holds the batch, of a publish the last that it made.
const (
	AttributeLake    = "UrlakeLake"
	AttributeDataset = "UrlakeDataset"
	AttributeBatch   = "UrlakeBatch"
	AttributeVersion = "UrlakeVersion"
)

var searchAttributes = []string{AttributeLake, AttributeDataset, AttributeBatch, AttributeVersion}

const (
	// searchTimeout is how long Temporal may take to list search attributes. Steps do without them
	// rather than wait.
	searchTimeout = 5 * time.Second
	// searchRefresh is how long the answer is kept.
	searchRefresh = time.Minute
)

// Search knows whether workflows of a namespace may set their search attributes. Temporal fails,
// and retries for ever, the workflow task that sets one that is not registered. A nil *Search sets
// none.
type Search struct {
	client    client.Client
	namespace string

	mu      sync.Mutex
	looked  time.Time
	allowed bool
}

// NewSearch returns the Search of a namespace.
func NewSearch(c client.Client, namespace string) *Search {
	return &Search{client: c, namespace: namespace}
}

// Register registers the attributes that the namespace lacks. The error says what a person with the
// permission has to do.
func (s *Search) Register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	missing, err := s.missing(ctx)
	if err == nil && len(missing) > 0 {
		add := map[string]enums.IndexedValueType{}
		for _, name := range missing {
			add[name] = enums.INDEXED_VALUE_TYPE_KEYWORD
		}
		_, err = s.client.OperatorService().AddSearchAttributes(ctx,
			&operatorservice.AddSearchAttributesRequest{Namespace: s.namespace, SearchAttributes: add})
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("workflows have no search attributes: %w; register them: "+
		"temporal operator search-attribute create --namespace %s --name %s --type Keyword",
		err, s.namespace, strings.Join(searchAttributes, " --type Keyword --name "))
}

// Allowed reports whether all attributes are registered.
func (s *Search) Allowed(ctx context.Context) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.looked) >= searchRefresh || !s.allowed {
		ctx, cancel := context.WithTimeout(ctx, searchTimeout)
		defer cancel()
		missing, err := s.missing(ctx)
		s.looked, s.allowed = time.Now(), err == nil && len(missing) == 0
	}
	return s.allowed
}

// missing returns the attributes that are not registered. An attribute of another type is an error.
func (s *Search) missing(ctx context.Context) ([]string, error) {
	r, err := s.client.OperatorService().ListSearchAttributes(ctx,
		&operatorservice.ListSearchAttributesRequest{Namespace: s.namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes: %w", err)
	}
	var missing []string
	for _, name := range searchAttributes {
		switch kind, ok := r.GetCustomAttributes()[name]; {
		case !ok:
			missing = append(missing, name)
		case kind != enums.INDEXED_VALUE_TYPE_KEYWORD:
			return nil, fmt.Errorf("search attribute %s has the type %s instead of Keyword", name, kind)
		}
	}
	return missing, nil
}
