//! Selectors: which objects a list or a watch asks for.

use super::refusal::Refusal;
use kube::core::{Expression, Selector, SelectorExt};
use serde_json::Value;
use std::collections::BTreeMap;

/// The label and field selectors of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Select {
    labels: Selector,
    /// Field, whether it is to be equal, and the value.
    fields: Vec<(Field, bool, String)>,
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Name,
    Namespace,
}

impl Select {
    pub(super) fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, Refusal> {
        let labels =
            terms(labels.unwrap_or_default()).into_iter().map(label_term).collect::<Result<Vec<_>, _>>()?;
        let fields =
            terms(fields.unwrap_or_default()).into_iter().map(field_term).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { labels: labels.into_iter().collect(), fields })
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let meta = &object["metadata"];
        let fields = self.fields.iter().all(|(field, equal, value)| {
            let has = match field {
                Field::Name => &meta["name"],
                Field::Namespace => &meta["namespace"],
            };
            (has.as_str().unwrap_or_default() == value) == *equal
        });
        fields && (self.labels.selects_all() || self.labels.matches(&labels_of(meta)))
    }
}

fn labels_of(meta: &Value) -> BTreeMap<String, String> {
    let labels = meta["labels"].as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

/// The parts between commas outside of brackets.
fn terms(selector: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = selector.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(str::trim).filter(|term| !term.is_empty()).collect()
}

/// `a=b`, `a==b` or `a!=b`: the sides, and whether they are to be equal.
fn equation(term: &str) -> Option<(&str, bool, &str)> {
    let (left, equal, right) = if let Some((left, right)) = term.split_once("!=") {
        (left, false, right)
    } else if let Some((left, right)) = term.split_once("==") {
        (left, true, right)
    } else {
        let (left, right) = term.split_once('=')?;
        (left, true, right)
    };
    Some((left.trim(), equal, right.trim()))
}

fn label_term(term: &str) -> Result<Expression, Refusal> {
    let wrong = || Refusal::bad_request(format!("unable to parse requirement: {term:?}"));
    if let Some((before, values)) = term.split_once('(') {
        let values =
            values.strip_suffix(')').ok_or_else(wrong)?.split(',').map(|value| value.trim().to_owned());
        let (key, word) = before.trim().rsplit_once(char::is_whitespace).ok_or_else(wrong)?;
        let key = key.trim().to_owned();
        return match word {
            "in" => Ok(Expression::In(key, values.collect())),
            "notin" => Ok(Expression::NotIn(key, values.collect())),
            _ => Err(wrong()),
        };
    }
    let is_key = |key: &str| !key.is_empty() && !key.contains(char::is_whitespace);
    match equation(term) {
        Some((key, true, value)) if is_key(key) => Ok(Expression::Equal(key.into(), value.into())),
        Some((key, false, value)) if is_key(key) => Ok(Expression::NotEqual(key.into(), value.into())),
        Some(_) => Err(wrong()),
        None => match term.strip_prefix('!') {
            Some(key) if is_key(key.trim()) => Ok(Expression::DoesNotExist(key.trim().into())),
            None if is_key(term) => Ok(Expression::Exists(term.into())),
            _ => Err(wrong()),
        },
    }
}

fn field_term(term: &str) -> Result<(Field, bool, String), Refusal> {
    let (field, equal, value) = equation(term).ok_or_else(|| {
        Refusal::bad_request(format!("invalid selector: {term:?}; can't understand {term:?}"))
    })?;
    let field = match field {
        "metadata.name" => Field::Name,
        "metadata.namespace" => Field::Namespace,
        other => return Err(Refusal::bad_request(format!("field label not supported: {other}"))),
    };
    Ok((field, equal, value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_selector_says_which_objects_it_means() {
        let object =
            json!({"metadata": {"name": "a", "namespace": "n", "labels": {"app": "web", "tier": "1"}}});
        let all = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("app=web", true),
            ("app==web,tier!=2", true),
            ("app in (db, web)", true),
            ("app in (db,x),tier=1", false),
            ("tier notin (1, 2)", false),
            ("other notin (1)", true),
            ("other!=1", true),
        ];
        for (labels, matches) in all {
            assert_eq!(Select::parse(Some(labels), None).unwrap().matches(&object), matches, "{labels}");
        }
        for (fields, matches) in
            [("metadata.name=a", true), ("metadata.name!=a", false), ("metadata.namespace=m", false)]
        {
            assert_eq!(Select::parse(None, Some(fields)).unwrap().matches(&object), matches, "{fields}");
        }
        for wrong in ["app in web", "a b", "=x", "in (x)"] {
            assert_eq!(Select::parse(Some(wrong), None).unwrap_err().code, 400, "{wrong}");
        }
        assert_eq!(Select::parse(None, Some("spec.nothing=1")).unwrap_err().code, 400);
    }
}
