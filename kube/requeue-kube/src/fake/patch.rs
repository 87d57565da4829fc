//! Patches: computes the object that a patch asks for.

use super::refusal::Refusal;
use json_patch::PatchOperation;
use serde_json::{Map, Value};

/// A JSON patch (RFC 6902).
pub(super) fn json(object: &Value, operations: &[PatchOperation]) -> Result<Value, Refusal> {
    let mut patched = object.clone();
    for operation in operations {
        if let PatchOperation::Test(test) = operation
            && test.value.is_null()
            && patched.pointer(test.path.as_str()).is_none()
        {
            continue; // to an API server what is not there is null
        }
        json_patch::patch(&mut patched, std::slice::from_ref(operation)).map_err(|e| {
            Refusal::without_object(422, "Invalid", format!("the server rejected our request: {e}"))
        })?;
    }
    Ok(patched)
}

/// A JSON merge patch (RFC 7396).
pub(super) fn merge(object: &Value, patch: &Value) -> Value {
    let mut patched = object.clone();
    json_patch::merge(&mut patched, patch);
    patched
}

/// A server-side apply: lays what the manager names now over the object, and removes what it named before, no
/// longer names, and no other manager names.
pub(super) fn apply(object: &Value, before: Option<&Value>, others: &[&Value], now: &Value) -> Value {
    let mut applied = object.clone();
    if let Some(before) = before {
        take_out(&mut applied, before, Some(now), others);
    }
    lay_over(&mut applied, now, "");
    applied
}

fn take_out(object: &mut Value, before: &Value, now: Option<&Value>, others: &[&Value]) {
    let (Value::Object(object), Value::Object(before)) = (object, before) else { return };
    for (key, old) in before {
        let new = now.and_then(|now| now.get(key));
        let others: Vec<&Value> = others.iter().filter_map(|other| other.get(key)).collect();
        match (old, new) {
            (Value::Object(_), _) => {
                let Some(field) = object.get_mut(key) else { continue };
                take_out(field, old, new, &others);
                if new.is_none() && others.is_empty() && field.as_object().is_some_and(Map::is_empty) {
                    object.remove(key);
                }
            }
            (_, None) if others.is_empty() => drop(object.remove(key)),
            _ => {}
        }
    }
}

fn lay_over(object: &mut Value, now: &Value, name: &str) {
    match (object, now) {
        (Value::Object(object), Value::Object(now)) => {
            for (key, value) in now.iter().filter(|(_, value)| !value.is_null()) {
                lay_over(object.entry(key.clone()).or_insert(Value::Null), value, key);
            }
        }
        // These two lists are shared by many managers.
        (Value::Array(object), Value::Array(now)) if name == "finalizers" => {
            let new: Vec<_> = now.iter().filter(|value| !object.contains(value)).cloned().collect();
            object.extend(new);
        }
        (Value::Array(object), Value::Array(now)) if name == "ownerReferences" => {
            for owner in now {
                match object.iter_mut().find(|old| old["uid"] == owner["uid"]) {
                    Some(old) => *old = owner.clone(),
                    None => object.push(owner.clone()),
                }
            }
        }
        (object, Value::Object(_)) => {
            *object = Value::Object(Map::new());
            lay_over(object, now, name);
        }
        (object, now) => *object = now.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::json as patch_of;
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_manager_applies_no_more_goes_unless_another_applies_it() {
        let first = json!({"spec": {"a": 1, "b": 2, "c": {"d": 3}}});
        let other = json!({"spec": {"b": 2}});
        let object = json!({"spec": {"a": 1, "b": 2, "c": {"d": 3}, "e": 4}});
        let now = json!({"spec": {"a": 5}});
        let applied = apply(&object, Some(&first), &[&other], &now);
        assert_eq!(applied, json!({"spec": {"a": 5, "b": 2, "e": 4}}));
    }

    #[test]
    fn two_managers_share_finalizers_and_owners() {
        let object =
            json!({"metadata": {"finalizers": ["a"], "ownerReferences": [{"uid": "1", "name": "x"}]}});
        let now =
            json!({"metadata": {"finalizers": ["a", "b"], "ownerReferences": [{"uid": "2", "name": "y"}]}});
        let applied = apply(&object, None, &[], &now);
        assert_eq!(applied["metadata"]["finalizers"], json!(["a", "b"]));
        assert_eq!(applied["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_test_of_null_holds_for_what_is_not_there() {
        let test: Vec<PatchOperation> = serde_json::from_value(json!([
            {"op": "test", "path": "/metadata/finalizers", "value": null},
            {"op": "add", "path": "/metadata/finalizers", "value": ["f"]},
        ]))
        .unwrap();
        let patched = patch_of(&json!({"metadata": {}}), &test).unwrap();
        assert_eq!(patched["metadata"]["finalizers"], json!(["f"]));
        let refused = patch_of(&json!({"metadata": {"finalizers": ["x"]}}), &test).unwrap_err();
        assert_eq!(refused.code, 422);
    }
}
