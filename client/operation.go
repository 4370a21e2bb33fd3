package client

import "context"

// Ready is what a server serves.
type Ready struct {
	Status           string `json:"status"` // ready
	Version          string `json:"version"`
	TakedownEpoch    int64  `json:"takedown_epoch"`
	Rows             int64  `json:"rows"`
	Datasets         int64  `json:"datasets"`
	CanonicalForm    string `json:"canonical_form"`
	PublicSuffixList string `json:"public_suffix_list"`
	// PublicSuffixListMissing means that the lake lacks the list, so that domains are guessed.
	PublicSuffixListMissing bool `json:"public_suffix_list_missing"`

	// The rest is zero for those who may not read all datasets.

	Generation int64 `json:"generation"`
	Segments   int64 `json:"segments"`
	// Err is why a newer version is not served, empty if there is none.
	Err          string `json:"error"`
	OpenVersions int64  `json:"open_versions"`
	FrameCache   Cache  `json:"frame_cache"`
	PageCache    Cache  `json:"page_cache"`
}

// Cache counts uses of a cache of the server.
type Cache struct {
	Hits    int64 `json:"hits"`
	Misses  int64 `json:"misses"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}

// Ready returns what the server serves. As long as it has no version open it answers 503, which is
// a *Problem of the kind NotReady once all attempts are used up.
func (c *Client) Ready(ctx context.Context) (*Ready, error) {
	var r Ready
	if err := c.get(ctx, "/readyz", &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Health returns nil if the server's process runs, whether or not it has a version open.
func (c *Client) Health(ctx context.Context) error {
	var h struct{}
	return c.get(ctx, "/healthz", &h)
}

// Metrics returns the server's metrics in Prometheus's text format. A server that was started with
// --metrics-listen has them at an address of their own, of which one makes another Client.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	return c.text(ctx, "/metrics", "text/plain")
}

// OpenAPI returns the server's own description of its interface: OpenAPI 3.1, as JSON.
func (c *Client) OpenAPI(ctx context.Context) ([]byte, error) {
	return c.text(ctx, "/openapi.json", "application/json")
}

// ProblemKind is what the server tells of a kind of problem.
type ProblemKind struct {
	// Type is the path of the explanation, Title the one of all problems of this kind.
	Type  string `json:"type"`
	Title string `json:"title"`
	// Statuses are the HTTP statuses that such a problem can have.
	Statuses []int `json:"statuses"`
	// Meaning says what happened, Remedy what one can do about it.
	Meaning string `json:"meaning"`
	Remedy  string `json:"remedy"`
	// Members are those that such a problem has in Problem.Members.
	Members []ProblemMember `json:"members"`
}

// ProblemMember is a member of problems of a kind.
type ProblemMember struct {
	Name    string `json:"name"`
	Meaning string `json:"meaning"`
}

// ProblemKind returns what the server tells of a kind of problem. The error is of the kind
// NoSuchPath if the server does not know it.
func (c *Client) ProblemKind(ctx context.Context, kind Kind) (*ProblemKind, error) {
	var k ProblemKind
	if err := c.get(ctx, "/problems/"+segment(string(kind)), &k); err != nil {
		return nil, err
	}
	return &k, nil
}
