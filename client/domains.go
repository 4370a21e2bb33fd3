package client

import (
	"context"
	"iter"
)

// Domain is what the datasets of a version have of a domain.
type Domain struct {
	Answered
	// Host is the host that was asked for, if it is not the domain itself. All counts are those of
	// the whole domain, which TotalsOf says then.
	Host     string `json:"host,omitempty"`
	TotalsOf string `json:"totals_of,omitempty"`
	// PublicSuffix is whether names below this one are domains of their own, as those below co.uk
	// are. DomainsBelow is how many of them the version has, nil while they are counted, and
	// DomainsBelowList the path of their list, which is that of DomainsOptions.Suffix.
	PublicSuffix     bool   `json:"public_suffix,omitempty"`
	DomainsBelow     *int64 `json:"domains_below"`
	DomainsBelowList string `json:"domains_below_list,omitempty"`
	// Total counts the datasets that contain the domain.
	Total int64 `json:"total_datasets"`
	// Datasets are all datasets that contain the domain, by id. There may be none.
	Datasets []Holding `json:"datasets"`
	Explain  *Explain  `json:"explain,omitempty"`
}

// Holding is what one dataset has of a domain.
type Holding struct {
	DatasetID uint32 `json:"dataset_id"`
	Name      string `json:"name"`
	Totals
}

// DomainPage is one page of the datasets that contain a domain.
type DomainPage struct {
	Domain
	Page
}

// Domain returns which datasets contain a domain. text is a domain, a host or a URL in any
// spelling. It collects all pages.
func (c *Client) Domain(ctx context.Context, text string, q Query) (*Domain, error) {
	var whole *Domain
	for page, err := range c.DomainPages(ctx, text, q) {
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = &page.Domain
		} else {
			whole.Datasets = append(whole.Datasets, page.Datasets...)
			whole.Explain = whole.Explain.add(page.Explain)
		}
	}
	return whole, nil
}

// DomainPages yields the pages of Domain.
func (c *Client) DomainPages(ctx context.Context, text string, q Query) iter.Seq2[*DomainPage, error] {
	return pages[DomainPage](ctx, c, at("/v1/domain/"+segment(text),
		"version", q.Version, "cursor", q.Cursor, "explain", q.explain()))
}

// Holders are the datasets that hold exactly one URL.
type Holders struct {
	// URL is canonical. The answer is for exactly this.
	URL   string `json:"url"`
	URLID ID     `json:"url_id"`
	Answered
	// Datasets are all that hold the URL, by id. There may be none.
	Datasets []Holder `json:"datasets"`
	Explain  *Explain `json:"explain,omitempty"`
}

// Holder is a dataset that holds a URL: how often, and since when and until when. The times are nil
// if no row has one.
type Holder struct {
	DatasetID uint32 `json:"dataset_id"`
	Name      string `json:"name"`
	Rows      int64  `json:"rows"`
	First     *Time  `json:"first_ts"`
	Last      *Time  `json:"last_ts"`
}

// HoldersPage is one page of the datasets that hold a URL. It may be empty and not the last.
type HoldersPage struct {
	Holders
	Page
}

// Holders returns which datasets hold exactly one URL, in any spelling. It collects all pages.
func (c *Client) Holders(ctx context.Context, url string, q Query) (*Holders, error) {
	var whole *Holders
	for page, err := range c.HoldersPages(ctx, url, q) {
		if err != nil {
			return nil, err
		}
		if whole == nil {
			whole = &page.Holders
		} else {
			whole.Datasets = append(whole.Datasets, page.Datasets...)
			whole.Explain = whole.Explain.add(page.Explain)
		}
	}
	return whole, nil
}

// HoldersPages yields the pages of Holders.
func (c *Client) HoldersPages(ctx context.Context, url string, q Query) iter.Seq2[*HoldersPage, error] {
	return pages[HoldersPage](ctx, c, at("/v1/url",
		"url", url, "version", q.Version, "cursor", q.Cursor, "explain", q.explain()))
}

// DomainsOptions select domains of a version. The zero value selects all.
type DomainsOptions struct {
	Query
	// Prefix is what the names begin with, Suffix what they end with: ".co.uk" selects the domains
	// below a public suffix. With both, the server reads all names that have one of them, whichever
	// are fewer.
	Prefix, Suffix string
	// Dataset is the id or name of the only dataset that counts. Empty means all.
	Dataset string
	// PageSize is the number of domains of a page, at most 10,000. 0 means the server's default.
	PageSize int
}

// DomainSum is a domain with its totals over the datasets.
type DomainSum struct {
	Domain   string `json:"domain"`
	DomainID ID     `json:"domain_id"`
	// Datasets counts the datasets that contain the domain. It is 0 in a DatasetTop.
	Datasets int64 `json:"total_datasets,omitempty"`
	Totals
}

// DomainsPage is one page of domains. It may be empty and not the last if the server's deadline
// ended it.
type DomainsPage struct {
	Page
	Version       string      `json:"version"`
	TakedownEpoch int64       `json:"takedown_epoch"`
	Domains       []DomainSum `json:"domains"`
	Explain       *Explain    `json:"explain,omitempty"`
}

// Domains yields domains of a version, in the order of their bytes. With a Suffix that is the order
// of their bytes from the last to the first, and with a Prefix, too, one of both.
func (c *Client) Domains(ctx context.Context, opt DomainsOptions) iter.Seq2[DomainSum, error] {
	return elements(c.DomainsPages(ctx, opt), func(p *DomainsPage) []DomainSum { return p.Domains })
}

// DomainsPages yields the pages of Domains.
func (c *Client) DomainsPages(ctx context.Context, opt DomainsOptions) iter.Seq2[*DomainsPage, error] {
	return pages[DomainsPage](ctx, c, at("/v1/domains", "prefix", opt.Prefix, "suffix", opt.Suffix, "dataset", opt.Dataset,
		"limit", number(opt.PageSize), "cursor", opt.Cursor, "version", opt.Version, "explain", opt.explain()))
}
