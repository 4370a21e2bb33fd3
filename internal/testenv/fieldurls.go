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
// ends the field. Fields of which a reader makes something else are listed.
func FieldURLs(field string) (urls []string) {
	const blanks = " \t\r\n\v\f"
	field = strings.Trim(field, blanks)
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
	// eot2024/eot_lgbtqandmisc.txt: words stand behind the URL.
	`https://ncses.nsf.gov   2024_sed_sogi_report`:                                    nil,
	`https://www.cdc.gov/healthyyouth/safe-supportive-environments/objective-1.htm ;`: nil,
	`https://www.test.census.gov   demo   twps07`:                                     nil,
	`https://www2.census.gov   tables   ssex-hist-tables`:                             nil,
	// eot2024/sitemap-url-seeds-a.tar.zst: nothing stands between the URLs. The
	// titles of files are a part of the URL for a person.
	`https://informal.jpl.nasa.gov/hhttps://informal.jpl.nasa.gov/museum/Connect`:                                                                               {`https://informal.jpl.nasa.gov/h`, `https://informal.jpl.nasa.gov/museum/Connect`},
	`http://madsc.lanl.gov/papers/Grasinger et al 2016 Decision analysis for robust CO2 injection: Application of Bayesian-Information-Gap Decision Theory.pdf`: nil,
	`http://madsc.lanl.gov/papers/Harp &amp; Vesselinov ABAGUS 2011.pdf`:                                                                                        nil,
	`http://madsc.lanl.gov/papers/Harp &amp; Vesselinov infogap source 2011.pdf`:                                                                                nil,
	// eot2024/sitemap-url-seeds-b.tar.zst: titles of pages, which are a part of
	// the URL for a person.
	`https://qpp-cm-prod-content.s3.amazonaws.com/uploads/1519/2021 Risk Standardized, All-Cause Unplanned Admissions for Multiple Chronic Conditions for ACOs.zip`: nil,
	`https://qpp-cm-prod-content.s3.amazonaws.com/uploads/1723/CY2022 Risk Standardized, All-Cause Admissions for Multiple Chronic Conditions for MIPS.zip`:         nil,
	`https://science.house.gov/2022/4/climate change hearing, full committee`:                                                                                       nil,
	`https://sewell.house.gov/2015/11/rep. sewell launches #restorethevote`:                                                                                         {`https://sewell.house.gov/2015/11/rep. sewell launches`},
	`https://sewell.house.gov/2015/11/rep. sewell launches &quot;project ready: the young entrepreneurs edition&quot;`:                                              nil,
	`https://sewell.house.gov/2015/2/&quot;his dream, our stories&quot;`:                                                                                            nil,
	`https://sewell.house.gov/2015/3/apply for a summer internship by friday, april 10th!`:                                                                          nil,
	`https://sewell.house.gov/2016/3/restore the vote: a congressional forum on the current state of voting rights in america`:                                      nil,
	`https://sewell.house.gov/2016/8/rep. terri sewell participates in congressional delegation visit to afghanistan  with minority leader nancy pelosi`:            nil,
	`https://sewell.house.gov/2016/9/restore the vote: a special order hour on the house floor to discuss modern day barriers to voting`:                            nil,
	`https://sewell.house.gov/2017/12/rep. sewell speaks out against the #goptaxscam`:                                                                               {`https://sewell.house.gov/2017/12/rep. sewell speaks out against the`},
	`https://sewell.house.gov/2018/1/q & a on the impacts of the #trumpshutdown`:                                                                                    {`https://sewell.house.gov/2018/1/q & a on the impacts of the`},
	`https://sewell.house.gov/2020/4/greene, hale, perry, & sumter county telephone town hall`:                                                                      nil,
	`https://sewell.house.gov/2020/4/rep. sewell coronavirus telephone town hall update - april 9, 2020`:                                                            nil,
	`https://sewell.house.gov/2020/5/re-opening alabama's economy telephone town hall - april 28, 2020`:                                                             nil,
	`https://sewell.house.gov/2020/6/this week: congress in your community telephone town hall`:                                                                     nil,
	`https://sewell.house.gov/2021/2/this week: telephone town hall`:                                                                                                nil,
	`https://sftool.gov/Content/attachments/Iswg/iswg-policies-strategies/EPA's IRA Low Embodied Carbon Efforts -Bennett, Oct 2023.pdf`:                             nil,
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
	// wikiteam/mediawikis_2013.txt.gz: nothing stands between the URLs.
	`http://mediawiki.spsnome.cz/index.phphttps:///`:                             {`http://mediawiki.spsnome.cz/index.php`, `https:///`},
	`http://wiki.openstreetmap.org/wikihttp:///`:                                 {`http://wiki.openstreetmap.org/wiki`, `http:///`},
	`http://www.beachapedia.org/Wetlandshttp://it.altervista.org/wiki/index.php`: {`http://www.beachapedia.org/Wetlands`, `http://it.altervista.org/wiki/index.php`},
}
