package testenv

import (
	"regexp"
	"strings"
)

var (
	beforeURL = regexp.MustCompile(`(?i)([^=\s,;|<>])[\s,;|<>]+(https?://)`)
	comment   = regexp.MustCompile(`\s#(\s.*)?$`)
)

// FieldURLs returns the URLs of a field of the shared data as an expression finds them: URLs follow
// one another between white space and , ; | < >, but not as the value of a parameter, and a comment
// ends the field. A field in quotes is what is between them. Fields of which a reader makes
// something else are listed.
func FieldURLs(field string) (urls []string) {
	const blanks = " \t\r\n\v\f"
	field = strings.Trim(field, blanks)
	if n := len(field); n > 1 && field[0] == '"' && field[n-1] == '"' {
		field = field[1 : n-1]
	}
	if urls, ok := otherFields[field]; ok {
		return urls
	}
	if field == "" {
		return nil
	}
	if !strings.ContainsAny(field, blanks+",;|<>") {
		return []string{field}
	}
	field = comment.ReplaceAllString(field, "")
	for url := range strings.SplitSeq(beforeURL.ReplaceAllString(field, "$1\x00$2"), "\x00") {
		if url = strings.Trim(url, blanks); url != "" {
			urls = append(urls, url)
		}
	}
	return urls
}

// otherFields are the fields that a reader reads otherwise than the expression, and the URLs
// that it reads; without any, the field is rejected.
var otherFields = map[string][]string{
	// eot2024/EDGI_EoT_Bulk_List_2025-01-16.csv.gz: lines of CSV
	// in a cell, and words with links. A person reads two URLs, and three.
	"https://www.epa.gov/toxics-release-inventory-tri-program,EDGI EoT Bulk List 2025-01-16.xlsx\nhttps://www.epa.gov/toxics-release-inventory-tri-program/tri-basic-plus-data-files-calendar-years-1987-present (archiving)":                                                                                                                                                                                                                                                             {`https://www.epa.gov/toxics-release-inventory-tri-program,EDGI EoT Bulk List 2025-01-16.xlsx`},
	"Webpage link: https://www.trade.gov/data-visualization/us-energy-trade-dashboard ,EDGI EoT Bulk List 2025-01-16.xlsx\n,EDGI EoT Bulk List 2025-01-16.xlsx\nDirect dashboard link: https://powerbi.trade.gov/#/workspace/IA-MFG-OEEI-PUBLIC/report/U.S.%20Energy%20Trade%20Dashboard ,EDGI EoT Bulk List 2025-01-16.xlsx\n,EDGI EoT Bulk List 2025-01-16.xlsx\nData dictionary link: https://www.trade.gov/sites/default/files/2022-04/U.S.%20Energy%20Trade%20Data%20Dictionary.pdf": {`Webpage link:`, `https://www.trade.gov/sites/default/files/2022-04/U.S.%20Energy%20Trade%20Data%20Dictionary.pdf`},
	// eot2024/US_Digital_Registry.csv.gz: a title.
	`U.S. Army Cyber CoE Commanding General (@CG_CyberForge) / Twitter`: nil,
	// eot2024/eot_lgbtqandmisc.txt: words or a separator stand behind the URL.
	`https://ncses.nsf.gov   2024_sed_sogi_report`:                                    nil,
	`https://www.cdc.gov/healthyyouth/safe-supportive-environments/objective-1.htm ;`: {`https://www.cdc.gov/healthyyouth/safe-supportive-environments/objective-1.htm`},
	`https://www.test.census.gov   demo   twps07`:                                     nil,
	`https://www2.census.gov   tables   ssex-hist-tables`:                             nil,
	// eot2024/sitemap-url-seeds-a.tar.zst: nothing stands between the URLs.
	`https://informal.jpl.nasa.gov/hhttps://informal.jpl.nasa.gov/museum/Connect`: {`https://informal.jpl.nasa.gov/h`, `https://informal.jpl.nasa.gov/museum/Connect`},
	// eot2024/sitemap-url-seeds-b.tar.zst: the title of a page, which is a part of
	// the URL for a person.
	`https://sewell.house.gov/2020/4/greene, hale, perry, & sumter county telephone town hall`: nil,
	// gsa-federal-website-index/after-gov_mil-filter-removed.csv.gz: words that
	// people typed for a page.
	`fiscal.treasury.gov, buy and redeem u.s. government securities`:   nil,
	`cms.gov, recursos en español`:                                     nil,
	`dhs.gov, información en español`:                                  nil,
	`saferproducts.gov, consumer product safety commission in spanish`: nil,
	`ttb.gov &amp`: nil,
	// hackernews/hacker_news.csv.gz: nothing stands between the URLs; the second was pasted into
	// the first.
	`http://www.independent.co.uk/news/business/news/apple-tax-probe-eu-us-treasury-unpaid-taxes-amazon-starbucks-fiat-a7208681.htmlhttp://www.independent.co.uk/news/business/news/apple-tax-probe-eu-us-treasury-unpaid-taxes-amazon-starbucks-fiat-a7208681.html`: {`http://www.independent.co.uk/news/business/news/apple-tax-probe-eu-us-treasury-unpaid-taxes-amazon-starbucks-fiat-a7208681.html`, `http://www.independent.co.uk/news/business/news/apple-tax-probe-eu-us-treasury-unpaid-taxes-amazon-starbucks-fiat-a7208681.html`},
	`https://jodal.no/2016/02/18/guide-to-poohttps://jodal.no/2016/02/18/guide-to-poor-api-management/r-api-management/`:                                                                                                                                             {`https://jodal.no/2016/02/18/guide-to-poo`, `https://jodal.no/2016/02/18/guide-to-poor-api-management/r-api-management/`},
	// the same file: a scheme too many.
	`http://ftp://ftp.tcl.tk/pub/incoming/p15/RichardHipp/microoptimization/paper.html`: {`ftp://ftp.tcl.tk/pub/incoming/p15/RichardHipp/microoptimization/paper.html`},
	// wikiteam/mediawikis_2013.txt.gz: nothing stands between the URLs.
	`http://mediawiki.spsnome.cz/index.phphttps:///`:                             {`http://mediawiki.spsnome.cz/index.php`, `https:///`},
	`http://wiki.openstreetmap.org/wikihttp:///`:                                 {`http://wiki.openstreetmap.org/wiki`, `http:///`},
	`http://www.beachapedia.org/Wetlandshttp://it.altervista.org/wiki/index.php`: {`http://www.beachapedia.org/Wetlands`, `http://it.altervista.org/wiki/index.php`},
}
