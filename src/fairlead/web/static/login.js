// A link with a one-time code after its `#`: browsers keep that to themselves, so it is sent from here, once.
"use strict";
{
  const secret = decodeURIComponent(location.hash.slice(1));
  if (secret) {
    history.replaceState(null, "", location.pathname);
    const field = document.getElementById("secret");
    field.value = secret;
    field.form.requestSubmit();
  }
}
