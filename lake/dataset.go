package lake

// Dataset is a named source of URLs.
type Dataset struct {
	// ID is assigned in the order of registration, from 1, and never reused.
	ID      uint32 `json:"dataset_id"`
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Source  string `json:"source,omitempty"`
	Licence string `json:"licence,omitempty"`
}
