package jdk.nashorn.api.scripting;

/** Maxwell names this class, which Java has not had since version 15, but uses it for scripts only. */
public class ScriptObjectMirror {
    public boolean isArray() {
        return false;
    }

    public boolean isFunction() {
        return false;
    }
}
